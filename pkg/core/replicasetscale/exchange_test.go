package replicasetscale

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// waits has the deletion of the pod wait for as long.
func waits(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		deleting(pod)
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = strconv.FormatInt(epoch.Add(-age).UnixNano(), 10)
	}
}

// withheld has a rule withhold the pod with a code.
func withheld(code rule.Code) func(*corev1.Pod) {
	detail, err := json.Marshal(appsv1alpha1.Detail{Stage: appsv1alpha1.StagePreCheck, RejectInfo: []appsv1alpha1.RejectInfo{
		{RuleName: "r", Reason: string(code) + ": approved is absent"},
	}})
	return annotated(appsv1alpha1.DetailAnnotationPrefix+"/web", string(detail), err)
}

func annotated(key, value string, err error) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if err != nil {
			panic(err)
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[key] = value
	}
}

func labelled(key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[key] = "true"
	}
}

// before returns attempts on pods that have not changed since.
func before(pods ...*corev1.Pod) map[types.UID]Attempt {
	attempts := map[types.UID]Attempt{}
	for _, pod := range pods {
		attempts[pod.UID] = AttemptOn(pod, epoch.Add(-time.Minute))
	}
	return attempts
}

func TestExchange(t *testing.T) {
	pods := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	permitted := func(pod *corev1.Pod) { waits(time.Minute)(pod); label(pod, appsv1alpha1.PrepareLabelPrefix) }
	costs := annotated(corev1.PodDeletionCost, "1000", nil)
	for name, tc := range map[string]struct {
		pods     []*corev1.Pod
		attempts map[types.UID]Attempt
		waits    Waits
		want     []string
		wake     time.Duration
	}{
		"equal pods stay":                                  {pods: pods(runs("a", waits(time.Hour)), runs("b"))},
		"a pod that became unready goes first":             {pods: pods(runs("a", waits(0)), runs("b", unready)), want: []string{"a"}},
		"not before one that is unready, too":              {pods: pods(runs("a", waits(0), unready), runs("b", unready))},
		"a cost that a user has set on a pod counts":       {pods: pods(runs("a", waits(0), costs), runs("b")), want: []string{"a"}},
		"the cost before the deletion counts":              {pods: pods(runs("a", waits(0), annotated(appsv1alpha1.PreviousDeletionCostAnnotationKey, "-5", nil)), runs("b"))},
		"a lower cost of another pod counts":               {pods: pods(runs("a", waits(0)), runs("b", cost("-100"))), want: []string{"a"}},
		"one for each other pod":                           {pods: pods(runs("a", waits(0)), runs("b", waits(0), costs), runs("c")), want: []string{"b"}},
		"a permitted pod goes":                             {pods: pods(runs("a", permitted), runs("b", unready))},
		"so does one whose removal a client has requested": {pods: pods(runs("a", waits(0), annotated(appsv1alpha1.PendingDeleteAnnotationKey, "{}", nil)), runs("b", unready))},
		"nor without others":                               {pods: pods(runs("a", waits(time.Hour), withheld(rule.CodeLabelMismatch)))},
		"not at once again":                                {pods: pods(runs("a", waits(0)), runs("b", unready)), waits: Waits{Exchanged: epoch}, wake: ExchangeAfter},

		"a pod that a rule withholds lets another pod go": {
			pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeLabelMismatch)), runs("b")), want: []string{"a"},
		},
		"not right after its begin, when the verdict may be on an earlier deletion": {
			pods: pods(runs("a", waits(time.Second), withheld(rule.CodeLabelMismatch)), runs("b")), wake: WithheldFor - time.Second,
		},
		"not for a verdict on the number of pods": {pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeNoRoom)), runs("b"))},
		"a pod that was withheld before waits for its turn": {
			pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeDenied)), runs("b")), attempts: before(runs("b")),
			waits: Waits{Exchanged: epoch.Add(-time.Minute)}, wake: ExchangeAgainAfter - time.Minute,
		},
		"and gets it": {
			pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeDenied)), runs("b")), attempts: before(runs("b")),
			waits: Waits{Exchanged: epoch.Add(-ExchangeAgainAfter)}, want: []string{"a"},
		},
		"less often each time": {
			pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeDenied)), runs("b")), attempts: before(runs("b")),
			waits: Waits{Exchanged: epoch.Add(-ExchangeAgainAfter), Passes: 1}, wake: ExchangeAgainAfter,
		},
		"at once when its labels change": {
			pods: pods(runs("a", waits(time.Minute), withheld(rule.CodeDenied)), runs("b", labelled("approved"))), attempts: before(runs("b")), want: []string{"a"},
		},
		"a pod that is not Ready lets no Ready pod go": {
			pods: pods(runs("a", waits(time.Minute), unready, withheld(rule.CodeDenied)), runs("b", labelled("approved"))),
		},
		"but another that is not Ready": {
			pods: pods(runs("a", waits(time.Minute), unready, withheld(rule.CodeDenied)), runs("b", unready), runs("c")), want: []string{"a"},
		},
		"in turns that no Ready pod begins": {
			pods:     pods(runs("a", waits(time.Minute), unready, withheld(rule.CodeDenied)), runs("b", unready), runs("c")),
			attempts: before(runs("b", unready)), waits: Waits{Exchanged: epoch.Add(-time.Minute)}, wake: ExchangeAgainAfter - time.Minute,
		},
		"while a Ready pod lets a Ready pod go": {
			pods: pods(
				runs("a", waits(time.Minute), unready, withheld(rule.CodeDenied)), runs("b", unready),
				runs("c", waits(time.Minute), withheld(rule.CodeDenied)), runs("d"),
			),
			attempts: before(runs("b", unready)), waits: Waits{Exchanged: epoch.Add(-time.Minute)},
			want: []string{"c"}, wake: ExchangeAgainAfter - time.Minute,
		},
		"a withheld pod does not come back for its health": {
			pods: pods(runs("a", waits(0)), runs("b", unready)), attempts: before(runs("b", unready)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := Snapshot{Set: ofScale(tc.pods), Pods: tc.pods, Workload: Workload{Pods: tc.pods}, Attempts: tc.attempts}
			got, _, wake := snapshot.exchange(tc.waits, epoch)
			if diff := cmp.Diff(tc.want, names(got)); diff != "" || wake != tc.wake {
				t.Errorf("again after %v, want %v; pods (-want +got):\n%s", wake, tc.wake, diff)
			}
		})
	}
}

// ofScale returns a ReplicaSet with one pod beyond spec.replicas.
func ofScale(pods []*corev1.Pod) *appsv1.ReplicaSet {
	set := newSet(int32(len(pods))-1, nil)
	set.Status.Replicas = int32(len(pods))
	return set
}

func TestCandidatesOfAttemptsComeLast(t *testing.T) {
	notReady, ready := runs("a", unready), runs("c")
	pods := []*corev1.Pod{notReady, runs("b", unready), ready, runs("d"), runs("e", deleting)}
	snapshot := Snapshot{Set: ofScale(pods), Pods: pods, Attempts: before(notReady, ready)}
	if diff := cmp.Diff([]string{"b", "a", "d", "c"}, names(snapshot.Candidates(epoch))); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

// TestAHoldCostsFewExchanges holds two of ten pods for a day under a rule that permits none.
func TestAHoldCostsFewExchanges(t *testing.T) {
	set := newSet(8, nil)
	set.Status.Replicas = 10
	pods := make([]*corev1.Pod, 10)
	for i := range pods {
		pods[i] = runs(string(rune('a' + i)))
	}
	attempts, waits, exchanges := map[types.UID]Attempt{}, Waits{}, 0
	for second := range 24 * 60 * 60 {
		now := epoch.Add(time.Duration(second) * time.Second)
		snapshot := Snapshot{Set: set, Pods: pods, Workload: Workload{Pods: pods}, Attempts: attempts}
		var decision Decision
		decision, waits = Decide(snapshot, waits, now)
		for _, pod := range decision.Exchange {
			exchanges++
			attempts[pod.UID] = AttemptOn(pod, now)
			pod.Labels, pod.Annotations = nil, nil
		}
		for _, pod := range snapshot.Candidates(now)[:decision.Begin] {
			deleting(pod)
			pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = strconv.FormatInt(now.UnixNano(), 10)
			withheld(rule.CodeLabelMismatch)(pod)
		}
	}
	t.Logf("%d exchanges", exchanges)
	if exchanges < 10 || exchanges > 70 { // each pod once, and two an hour
		t.Errorf("%d exchanges in a day", exchanges)
	}
}
