package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
)

// approvalService is the approval service of one scenario.
type approvalService struct {
	*approvals.Service
	*approvals.Server
}

// openApprovalService runs a service until the scenario ends. watch may be nil.
func openApprovalService(watch approvals.Watch, options approvals.Options) approvalService {
	GinkgoHelper()
	service := approvals.New(watch)
	server, err := approvals.Serve(service, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		// A manager may keep a connection open that it never uses.
		ctx, stop := context.WithTimeout(ctx, patience)
		defer stop()
		Expect(server.Close(ctx)).To(Succeed())
	})
	return approvalService{Service: service, Server: server}
}

// webhookRule returns a rule that calls a service.
func webhookRule(url string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approval", Webhook: &appsv1alpha1.TransitionRuleWebhook{
		ClientConfig: appsv1alpha1.WebhookClientConfig{URL: url},
	}}
}

// callsOnce returns a rule that calls the service without polling.
func (d approvalService) callsOnce(path string) appsv1alpha1.TransitionRule {
	return webhookRule(d.URL(path))
}

// callsOverTLS does the same over HTTPS, and trusts the CA of the service.
func (d approvalService) callsOverTLS(path string) appsv1alpha1.TransitionRule {
	rule := webhookRule(d.SecureURL(path))
	rule.Webhook.ClientConfig.CABundle = string(d.CA())
	return rule
}

// polls returns a rule that polls the result every second, up to a timeout.
func (d approvalService) polls(path string, timeoutSeconds int64) appsv1alpha1.TransitionRule {
	rule := d.callsOnce(path)
	rule.Webhook.ClientConfig.Poll = &appsv1alpha1.WebhookPoll{
		URL: d.URL("/result"), IntervalSeconds: new(int64(1)), TimeoutSeconds: &timeoutSeconds,
	}
	return rule
}

// pollsSecurely does the same over HTTPS.
func (d approvalService) pollsSecurely(path string, timeoutSeconds int64) appsv1alpha1.TransitionRule {
	rule := d.callsOverTLS(path)
	rule.Webhook.ClientConfig.Poll = &appsv1alpha1.WebhookPoll{
		URL: d.SecureURL("/result"), CABundle: string(d.CA()), IntervalSeconds: new(int64(1)), TimeoutSeconds: &timeoutSeconds,
	}
	return rule
}

// inPostCheck returns the same rule for the other stage, and not for new pods.
func inPostCheck(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
	rule = inEachPostCheck(rule)
	rule.Conditions = []string{"update", "rollback", explainID}
	return rule
}

// inEachPostCheck returns the same rule for the other stage.
func inEachPostCheck(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
	rule.Name += "-after"
	rule.Stage = appsv1alpha1.StagePostCheck
	return rule
}

// passage is one pod that has passed one stage: a permit.
type passage struct {
	UID   types.UID
	Stage appsv1alpha1.TransitionStage
	ID    string

	// Since is when its wait began, and At when it was permitted.
	Since, At time.Time
}

// String identifies passages in messages.
func (p passage) String() string {
	return fmt.Sprintf("%s of pod %s (id %s) from %s to %s", p.Stage, p.UID, p.ID, p.Since.Format(time.StampMicro), p.At.Format(time.StampMicro))
}

// passages holds all passages of a scenario, from its own watch, which gets every version
// of every pod.
type passages struct {
	mu      sync.Mutex
	waiting map[string]passage // by UID and label
	passed  []passage

	// began holds every time at which a wait of a pod began, by stage and UID. A wait that
	// begins again, because the operation was cancelled or a permit was withdrawn, needs an
	// approval of its own.
	began map[string]map[string]bool
}

// recordPassages starts recording.
func recordPassages(p scenario) *passages {
	GinkgoHelper()
	r := &passages{waiting: map[string]passage{}, began: map[string]map[string]bool{}}
	list := &corev1.PodList{}
	follow(p, list, func() []*corev1.Pod { return pointers(list.Items) }, func(_ watch.EventType, pod *corev1.Pod) { r.see(pod) })
	return r
}

func (r *passages) see(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, value := range pod.Labels {
		prefix, id, _ := strings.Cut(key, "/")
		stage, waits := map[string]appsv1alpha1.TransitionStage{
			appsv1alpha1.PreCheckLabelPrefix: appsv1alpha1.StagePreCheck, appsv1alpha1.PostCheckLabelPrefix: appsv1alpha1.StagePostCheck,
		}[prefix]
		if waits {
			at := string(stage) + string(pod.UID)
			if r.began[at] == nil {
				r.began[at] = map[string]bool{}
			}
			r.began[at][key+value] = true
			r.waiting[string(pod.UID)+key] = passage{UID: pod.UID, Stage: stage, ID: id, Since: labelTime(value)}
		}
	}
	for at, passed := range r.waiting {
		key := strings.TrimPrefix(at, string(pod.UID))
		if _, waits := pod.Labels[key]; waits || passed.UID != pod.UID {
			continue
		}
		delete(r.waiting, at)
		if permit, ok := permitOf(pod, passed.Stage, passed.ID); ok {
			passed.At = labelTime(permit)
			r.passed = append(r.passed, passed)
		}
	}
}

// permitOf returns the time of the permit for an id that no longer waits in the stage;
// false when it was cancelled. A pod that can be available at once loses every label of the
// id in the write that permits it.
func permitOf(pod *corev1.Pod, stage appsv1alpha1.TransitionStage, id string) (string, bool) {
	if stage == appsv1alpha1.StagePreCheck {
		value, ok := pod.Labels[preChecked+id]
		return value, ok
	}
	if value, ok := pod.Labels[appsv1alpha1.PostCheckedLabelPrefix+"/"+id]; ok {
		return value, true
	}
	value, ok := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return value, ok
}

// labelTime returns the time in a lifecycle label.
func labelTime(value string) time.Time {
	GinkgoHelper()
	nanos, err := strconv.ParseInt(value, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return time.Unix(0, nanos)
}

// in returns the passages of a stage so far.
func (r *passages) in(stage appsv1alpha1.TransitionStage) []passage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.passed), func(p passage) bool { return p.Stage != stage })
}

// unapproved returns the passages of a stage without an approval of this pod and stage
// during its wait.
func (r *passages) unapproved(stage appsv1alpha1.TransitionStage, given []approvals.Approval) []passage {
	return slices.DeleteFunc(r.in(stage), func(p passage) bool {
		return slices.ContainsFunc(given, func(a approvals.Approval) bool {
			return a.Pod.UID == string(p.UID) && a.Stage == string(p.Stage) && !a.Time.Before(p.Since) && !a.Time.After(p.At)
		})
	})
}

// expectOneForOne expects that each passage of a stage has one approval, and each approval
// its own wait.
func (r *passages) expectOneForOne(stage appsv1alpha1.TransitionStage, given []approvals.Approval) {
	GinkgoHelper()
	permitted, approved := map[string]int{}, map[string]int{}
	for _, passed := range r.in(stage) {
		permitted[string(passed.UID)]++
	}
	for _, approval := range given {
		if approval.Stage == string(stage) {
			approved[approval.Pod.UID]++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, count := range permitted {
		Expect(approved[uid]).To(BeNumerically(">=", count), "approvals of pod %s in %s: %s", uid, stage, listed(given))
	}
	for uid, count := range approved {
		Expect(count).To(BeNumerically("<=", len(r.began[string(stage)+uid])),
			"approvals of pod %s in %s, and how often it began to wait: %s", uid, stage, listed(given))
	}
}

// listed returns a short text of approvals.
func listed(given []approvals.Approval) string {
	var lines []string
	for _, one := range given {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", one.Time.Format("05.000"), one.TraceID[:8], one.Pod.Name, one.Pod.UID[:8]))
	}
	return strings.Join(lines, "; ")
}

// expectOnePostPerTrace expects that no call was made twice under one traceId.
func (d approvalService) expectOnePostPerTrace(p scenario) {
	GinkgoHelper()
	Expect(d.Posts(p.namespace)).To(And(Not(BeEmpty()), HaveEach(1)), "POSTs by traceId")
}

// pathsOf returns the paths of requests, sorted, without duplicates.
func pathsOf(entries []approvals.Entry) []string {
	var paths []string
	for _, entry := range entries {
		paths = append(paths, entry.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
