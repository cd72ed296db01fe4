package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// evictionPace is the interval at which kubectl drain tries again.
const evictionPace = 5 * time.Second

// The labels app of the pods in flight. Rules that require an approval hold those of "held", of the Deployment
// "kept" and of the PodOperation, and after the operation "checked".
const (
	held    = "held"
	kept    = "kept"
	checked = "checked"
	called  = "called"
	free    = "free"
)

// inFlight has an operation and a request of each kind that may be in flight when PodOps is upgraded.
type inFlight struct {
	space
	lb        balancer
	operation *appsv1alpha1.PodOperation
	before    map[types.UID]standing
	posts     map[string]int // POSTs by traceId

	// gone counts the Deployment's pods whose deletes no replica has reviewed.
	gone int
}

// standing is where a pod stands.
type standing struct {
	Name   string
	Labels map[string]string // of lifecycles, with the time of each step
}

// begin begins everything, and returns once all of it waits for what release does.
func begin(ctx context.Context, s *system, name string) *inFlight {
	GinkgoHelper()
	f := &inFlight{space: newSpace(ctx, s, name), lb: balancer("lb")}
	f.service(ctx, string(f.lb))
	f.rule(ctx, held, approved())
	f.rule(ctx, kept, approved())
	f.rule(ctx, checked, inPostCheck(approved()))
	f.rule(ctx, called, s.called("/manual"))

	f.deployment(ctx, kept, 4)
	for _, pod := range []string{"deleted", "evicted", "waiting", "restarted-0", "restarted-1", "restarted-2"} {
		f.pod(ctx, pod, held, nil)
	}
	f.pod(ctx, "checked", checked, nil)
	f.pod(ctx, "called-0", called, nil)
	f.pod(ctx, "called-1", called, nil)
	f.pod(ctx, "operating", free, nil)
	f.pod(ctx, "preparing", free, f.lb.announce)
	f.pod(ctx, "completing", free, f.lb.announce)
	stop := f.act(f.lb.balancing)
	f.awaitServing(ctx, 16)
	stop() // the service controller is down from here on
	Eventually(ctx, f.rules).Should(expect.All(HaveField("Status.Selected", BeNumerically(">", 0))), "the manager has each rule")

	f.holdRequests(ctx)
	f.beginLifecycles(ctx)
	f.beginOperation(ctx)
	f.before = f.standings()
	f.posts = s.approvals.Posts(f.namespace)
	return f
}

// rules returns the PodTransitionRules.
func (f *inFlight) rules(ctx context.Context) ([]appsv1alpha1.PodTransitionRule, error) {
	list := &appsv1alpha1.PodTransitionRuleList{}
	err := f.admin.List(ctx, list, client.InNamespace(f.namespace))
	return list.Items, err
}

// inPostCheck returns a rule for the other stage, and not for new pods.
func inPostCheck(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
	rule.Stage, rule.Conditions = appsv1alpha1.StagePostCheck, []string{"update"}
	return rule
}

// holdRequests requests a delete by the label to-delete, an eviction and a scale-down, which are held.
func (f *inFlight) holdRequests(ctx context.Context) {
	GinkgoHelper()
	Expect(f.patch(ctx, f.pod0("deleted"), `{"metadata":{"labels":{"`+appsv1alpha1.ToDeleteLabelKey+`":"true"}}}`)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) error { return f.evict(ctx) }).Should(expect.BeRefused(429))
	DeferCleanup(f.drain())
	Expect(f.patch(ctx, named(&appsv1.Deployment{}, kept), `{"spec":{"replicas":2}}`)).To(Succeed())
	waits := expect.BeWaiting(appsv1alpha1.PodDeleteID)
	Eventually(ctx, f.seeing("deleted")).Should(waits)
	Eventually(ctx, f.seeing("evicted")).Should(waits)
	Eventually(ctx, f.leaving).Should(HaveLen(2))
}

// pod0 returns a pod that has a name only.
func (f *inFlight) pod0(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
}

func (f *inFlight) evict(ctx context.Context) error {
	pod := f.pod0("evicted")
	return f.admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
}

// drain evicts the pod again and again, as kubectl drain does, until stop is called. It leaves out the times at which
// a leader is killed: evictions may pass then, as docs/upgrade.md states. An eviction that no manager answers is repeated
// at once: a leader of the previous release cancels a request whose record is older than three intervals, and records
// every other repetition.
func (f *inFlight) drain() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pace := time.NewTicker(evictionPace)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
				f.replicas.betweenKills(func() {
					answered, cancel := context.WithTimeout(ctx, evictionPace)
					defer cancel()
					_ = insist(answered, f.evict) // held, or carried out: the pod shows it
				})
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// leaving returns the pods of the Deployment that wait to be deleted.
func (f *inFlight) leaving() []*corev1.Pod {
	return slices.DeleteFunc(f.list(), func(pod *corev1.Pod) bool {
		waits, _ := expect.BeWaiting(appsv1alpha1.PodDeleteID).Match(pod)
		return pod.Labels["app"] != kept || !waits
	})
}

// seeing returns a function that returns a pod, nil when it does not exist.
func (f *inFlight) seeing(name string) func() *corev1.Pod {
	return func() *corev1.Pod {
		for _, pod := range f.list() {
			if pod.Name == name {
				return pod
			}
		}
		return nil
	}
}

// beginLifecycles leaves one lifecycle in each state.
func (f *inFlight) beginLifecycles(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"waiting", "preparing", "operating", "checked", "completing", "called-0", "called-1"} {
		f.do(ctx, name, func(*corev1.Pod) change { return change{Labels: beginning()} })
	}
	Eventually(ctx, f.seeing("waiting")).Should(expect.BeWaiting(operator))
	Eventually(ctx, f.seeing("operating")).Should(expect.BeOperable(operator))

	Eventually(ctx, f.seeing("checked")).Should(expect.BeOperable(operator))
	f.do(ctx, "checked", func(*corev1.Pod) change { return change{Labels: finishing()} })
	Eventually(ctx, f.seeing("checked")).Should(expect.HaveLabel(appsv1alpha1.PostCheckLabelPrefix + "/" + operator))

	prepares := And(expect.HaveLabel(appsv1alpha1.PrepareLabelPrefix+"/"+operator), Not(expect.BeReady()))
	Eventually(ctx, f.seeing("preparing")).Should(prepares)
	Eventually(ctx, f.seeing("completing")).Should(prepares)
	f.do(ctx, "completing", f.lb.detach)
	Eventually(ctx, f.seeing("completing")).Should(expect.BeOperable(operator))
	f.do(ctx, "completing", func(*corev1.Pod) change { return change{Labels: finishing()} })
	Eventually(ctx, f.seeing("completing")).Should(And(
		expect.HaveLabel(appsv1alpha1.CompleteLabelPrefix+"/"+operator), expect.BeReady()))

	Eventually(ctx, func() int { return len(f.approvals.Waiting(f.namespace)) }).Should(Equal(2))
	Eventually(ctx, f.polled).Should(BeTrue(), "each call must be polled")
}

// do changes a pod of any version.
func (f *inFlight) do(ctx context.Context, name string, wanted func(*corev1.Pod) change) {
	GinkgoHelper()
	Expect(insist(ctx, func(ctx context.Context) error {
		pod := f.pod0(name)
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		patch, err := wanted(pod).render(pod)
		if err != nil {
			return err
		}
		return f.admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))
	})).To(Succeed())
}

// polled reports whether every call of the namespace was polled, so that it is recorded.
func (f *inFlight) polled() bool {
	polled := map[string]bool{}
	for _, entry := range f.approvals.Log(f.namespace) {
		polled[entry.TaskID] = polled[entry.TaskID] || entry.Path == "/result"
	}
	return len(polled) > 0 && !slices.Contains(slices.Collect(maps.Values(polled)), false)
}

// beginOperation begins a PodOperation that has restarted the first of its pods.
func (f *inFlight) beginOperation(ctx context.Context) {
	GinkgoHelper()
	f.operation = &appsv1alpha1.PodOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "restart"},
		Spec: appsv1alpha1.PodOperationSpec{
			Target: appsv1alpha1.PodOperationTarget{Names: []string{"restarted-0", "restarted-1", "restarted-2"}},
			Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart},
		},
	}
	f.create(ctx, f.operation)
	id := appsv1alpha1.PodOperationIDPrefix + string(f.operation.UID)
	for _, name := range []string{"restarted-0", "restarted-1", "restarted-2"} {
		Eventually(ctx, f.seeing(name)).Should(expect.BeWaiting(id))
	}
	Expect(f.patch(ctx, named(&corev1.Pod{}, "restarted-0"), `{"metadata":{"labels":{%q:"true"}}}`, approvedLabel)).To(Succeed())
	Eventually(ctx, f.seeing("restarted-0")).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveRestarted()))
	Eventually(ctx, f.seeOperation).Should(And(HaveField("Status.Succeeded", int32(1)), HaveField("Status.Preparing", int32(2))))
}

func (f *inFlight) seeOperation(ctx context.Context) (*appsv1alpha1.PodOperation, error) {
	return f.operation, f.admin.Get(ctx, client.ObjectKeyFromObject(f.operation), f.operation)
}

// haveRestarted matches pods that have restarted once.
func haveRestarted() OmegaMatcher {
	return WithTransform(func(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }, Equal(int32(1)))
}

// standings returns where each pod stands.
func (f *inFlight) standings() map[types.UID]standing {
	all := map[types.UID]standing{}
	for _, pod := range f.list() {
		all[pod.UID] = standing{pod.Name, expect.LifecycleLabels(pod)}
	}
	return all
}

// expectKept expects that everything is as it was: each lifecycle has taken no step, and was not begun again. Of the pods of
// "kept", which a rule withholds, others may wait in turn. The controller of ReplicaSets repeats their deletes: one that no
// replica reviewed, since it was killed, removes its pod, as docs/upgrade.md states.
func (f *inFlight) expectKept(ctx context.Context) {
	GinkgoHelper()
	passed := readRequests(f.system).passedPods
	maps.DeleteFunc(f.before, func(_ types.UID, pod standing) bool {
		isGone := isKept(pod) && passed[types.NamespacedName{Namespace: f.namespace, Name: pod.Name}]
		if isGone {
			f.gone++
		}
		return isGone
	})
	Expect(cmp.Diff(withoutKept(f.before), withoutKept(f.standings()))).To(BeEmpty(), "where the pods in flight stand (-before +now)")
	Eventually(ctx, f.leaving).Should(HaveLen(2-f.gone), "pods of the Deployment that wait")
	Expect(f.seeOperation(ctx)).To(And(HaveField("Status.Succeeded", int32(1)), HaveField("Status.CompletionTime", BeNil())))
	Expect(f.approvals.Posts(f.namespace)).To(Equal(f.posts), "POSTs by traceId")
	Expect(f.approvals.Waiting(f.namespace)).To(HaveLen(2))
	for _, name := range []string{"deleted", "evicted"} {
		Expect(f.seeing(name)().Annotations).To(HaveKey(appsv1alpha1.PendingDeleteAnnotationKey), name)
	}
}

func isKept(pod standing) bool { return strings.HasPrefix(pod.Name, kept+"-") }

// withoutKept returns the pods that the Deployment does not have.
func withoutKept(all map[types.UID]standing) map[types.UID]standing {
	others := maps.Clone(all)
	maps.DeleteFunc(others, func(_ types.UID, pod standing) bool { return isKept(pod) })
	return others
}

// release approves and continues everything, and expects that all of it completes, once.
func (f *inFlight) release(ctx context.Context) {
	GinkgoHelper()
	DeferCleanup(f.act(f.lb.balancing, func(pod *corev1.Pod) change {
		if _, has := pod.Labels[approvedLabel]; !has && pod.DeletionTimestamp == nil {
			return change{Labels: map[string]any{approvedLabel: "true"}}
		}
		_, operating := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+operator]
		if allowed, _ := expect.BeOperable(operator).Match(pod); allowed && operating {
			return change{Labels: finishing()}
		}
		return change{}
	}))
	Expect(f.approvals.Decide(f.namespace, "", true)).To(ConsistOf("called-0", "called-1"))

	Eventually(ctx, f.list).Should(And(HaveLen(12), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
	names := map[string]int{}
	for _, pod := range f.list() {
		Expect(f.before).To(HaveKey(pod.UID), "%s must be the pod that it was", pod.Name)
		names[pod.Labels["app"]]++
	}
	Expect(names).To(Equal(map[string]int{held: 4, kept: 2, checked: 1, called: 2, free: 3}))
	for _, name := range []string{"deleted", "evicted"} {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(f.pod0(name)), f.pod0(name))
		Expect(err).To(Satisfy(apierrors.IsNotFound), name)
	}
	Eventually(ctx, f.seeOperation).Should(HaveField("Status.CompletionTime", Not(BeNil())))
	Expect(meta.IsStatusConditionTrue(f.operation.Status.Conditions, appsv1alpha1.ConditionReady)).To(BeTrue(), "%v", f.operation.Status)
	for i := range 3 {
		Expect(f.seeing(fmt.Sprintf("restarted-%d", i))()).To(haveRestarted())
	}
	Expect(f.approvals.Posts(f.namespace)).To(Equal(f.posts), "POSTs by traceId: no call may be made again")
}
