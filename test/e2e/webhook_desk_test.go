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

// desk is the approval service of one story.
type desk struct {
	*approvals.Service
	*approvals.Server
}

// openDesk runs a service until the story ends. watch may be nil.
func openDesk(watch approvals.Watch, options approvals.Options) desk {
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
	return desk{Service: service, Server: server}
}

// webhookRule is a rule that asks a service.
func webhookRule(url string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approval", Webhook: &appsv1alpha1.TransitionRuleWebhook{
		ClientConfig: appsv1alpha1.WebhookClientConfig{URL: url},
	}}
}

// asks is a rule that asks the service at once.
func (d desk) asks(path string) appsv1alpha1.TransitionRule { return webhookRule(d.URL(path)) }

// asksSecurely does the same over HTTPS, and trusts the CA of the service.
func (d desk) asksSecurely(path string) appsv1alpha1.TransitionRule {
	rule := webhookRule(d.SecureURL(path))
	rule.Webhook.ClientConfig.CABundle = string(d.CA())
	return rule
}

// polls asks for the result every second, for so many seconds.
func (d desk) polls(path string, timeoutSeconds int64) appsv1alpha1.TransitionRule {
	rule := d.asks(path)
	rule.Webhook.ClientConfig.Poll = &appsv1alpha1.WebhookPoll{
		URL: d.URL("/result"), IntervalSeconds: new(int64(1)), TimeoutSeconds: &timeoutSeconds,
	}
	return rule
}

// pollsSecurely does the same over HTTPS.
func (d desk) pollsSecurely(path string, timeoutSeconds int64) appsv1alpha1.TransitionRule {
	rule := d.asksSecurely(path)
	rule.Webhook.ClientConfig.Poll = &appsv1alpha1.WebhookPoll{
		URL: d.SecureURL("/result"), CABundle: string(d.CA()), IntervalSeconds: new(int64(1)), TimeoutSeconds: &timeoutSeconds,
	}
	return rule
}

// inPostCheck is the same rule in the other stage.
func inPostCheck(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
	rule.Name += "-after"
	rule.Stage = appsv1alpha1.StagePostCheck
	return rule
}

// passage is one pod that has passed one stage: a permit.
type passage struct {
	UID   types.UID
	Stage appsv1alpha1.TransitionStage
	ID    string

	// Since is when it began to wait, and At when it was permitted.
	Since, At time.Time
}

// String tells passages apart in messages.
func (p passage) String() string {
	return fmt.Sprintf("%s of pod %s (id %s) from %s to %s", p.Stage, p.UID, p.ID, p.Since.Format(time.StampMicro), p.At.Format(time.StampMicro))
}

// passages are all of a story, seen with a watch of its own, which sees every version of
// every pod.
type passages struct {
	mu      sync.Mutex
	waiting map[string]passage // by UID and label
	passed  []passage

	// began has every time at which a pod began to wait, by stage and UID. A waiting that
	// begins anew, because the operation was called off or a permit was withdrawn, needs an
	// approval of its own.
	began map[string]map[string]bool
}

// recordPassages starts to record.
func recordPassages(p place) *passages {
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

// permitOf is the time of the permit for an id that does not wait in the stage any more;
// false when it was cancelled. A pod that is fit to serve at once loses every label of the
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

// labelTime is the time that a lifecycle label holds.
func labelTime(value string) time.Time {
	GinkgoHelper()
	nanos, err := strconv.ParseInt(value, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return time.Unix(0, nanos)
}

// in are the passages of a stage so far.
func (r *passages) in(stage appsv1alpha1.TransitionStage) []passage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.passed), func(p passage) bool { return p.Stage != stage })
}

// unapproved are those of a stage that no approval of a service speaks of: one about this
// pod and stage, given while the pod waited.
func (r *passages) unapproved(stage appsv1alpha1.TransitionStage, given []approvals.Approval) []passage {
	return slices.DeleteFunc(r.in(stage), func(p passage) bool {
		return slices.ContainsFunc(given, func(a approvals.Approval) bool {
			return a.Pod.UID == string(p.UID) && a.Stage == string(p.Stage) && !a.Time.Before(p.Since) && !a.Time.After(p.At)
		})
	})
}

// expectOneForOne: each passage of a stage has one approval, and each approval a waiting of
// its own.
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

// listed are approvals in short.
func listed(given []approvals.Approval) string {
	var lines []string
	for _, one := range given {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", one.Time.Format("05.000"), one.TraceID[:8], one.Pod.Name, one.Pod.UID[:8]))
	}
	return strings.Join(lines, "; ")
}

// expectOnePostPerTrace: no call was made twice under one traceId.
func (d desk) expectOnePostPerTrace(p place) {
	GinkgoHelper()
	Expect(d.Posts(p.namespace)).To(And(Not(BeEmpty()), HaveEach(1)), "POSTs by traceId")
}

// pathsOf are the paths of requests, sorted, each once.
func pathsOf(entries []approvals.Entry) []string {
	var paths []string
	for _, entry := range entries {
		paths = append(paths, entry.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
