package podtransitionrule

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// The schedules that random ones seldom find. Each breaks when the part of the algorithm
// that it is named after is taken out. All bound the pods of one workload to one that
// may be unavailable.

// budgetPrefix begins the names of PodDisruptionBudgets among the objects of a story.
const budgetPrefix = "PodDisruptionBudget/"

// newStory is a quiet simulation of three pods that wait, web-0 for the longest time, and of
// two replicas that have seen nothing of it. The very last event is that web-0 begins to wait: it
// was admitted by a replica whose clock is behind.
func newStory(t *testing.T, objects ...string) *simulation {
	t.Helper()
	w := newSimulation(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, true)
	t.Cleanup(w.close)
	w.addOwner("web", 3)
	for _, name := range objects {
		if budget, ok := strings.CutPrefix(name, budgetPrefix); ok {
			w.addBudget(budget, 1, "web")
			continue
		}
		w.server.putRule(name, appsv1alpha1.PodTransitionRuleSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Rules:    []appsv1alpha1.TransitionRule{maxUnavailable("one", 1)},
		})
	}
	for range 2 {
		w.replicas = append(w.replicas, newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory)))
	}
	w.begin("web-1", "a", "upgrade")
	w.begin("web-2", "a", "upgrade")
	w.now = w.now.Add(-time.Minute)
	w.begin("web-0", "a", "upgrade")
	w.now = w.now.Add(time.Minute)
	return w
}

// watchAllButLast delivers everything but the last event of pods: web-0 serves and begins to wait
// for nothing, and web-1 has waited for the longest time.
func (r *replica) watchAllButLast() {
	r.watchRecords()
	r.watchPods(len(r.simulation.server.podHistory) - r.pods - 1)
}

func maxUnavailable(name string, most int32) appsv1alpha1.TransitionRule {
	bound := intstr.FromInt32(most)
	rule := ruleOfKind("max", &bound, nil)
	rule.Name = name
	return rule
}

// watchRecords delivers everything but pods.
func (r *replica) watchRecords() {
	r.watchRules(len(r.simulation.server.ruleHistory) - r.rules)
	r.watchBudgets(len(r.simulation.server.budgetHistory) - r.budgets)
}

// expectPermitted fails unless just these pods do not serve, since they were permitted or
// have failed.
func (w *simulation) expectPermitted(t *testing.T, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, name := range w.podNames(anyPod) {
		if !isServing(w.server.pods[name]) {
			got[name] = true
		}
	}
	for _, name := range want {
		if !got[name] {
			t.Errorf("pod %s is not permitted", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("pod %s is permitted", name)
	}
}

// TestAReservationCountsInAViewFromBeforeIt shows that a replica that sees the record and not yet
// the pod as it was reserved must not give the slot away.
func TestAReservationCountsInAViewFromBeforeIt(t *testing.T) {
	for _, object := range []string{"x", budgetPrefix + "x"} {
		t.Run(object, func(t *testing.T) {
			w := newStory(t, object)
			first, second := w.replicas[0], w.replicas[1]
			second.watchAllButLast()
			first.catchUp()
			first.start()
			first.resume(fateAccepted) // the record of x; the permit of web-0 is under way

			second.watchRecords()
			second.finish()
			first.finish()
			w.expectPermitted(t, "web-0")
		})
	}
}

// TestADroppedReservationRequiresAView shows that a replica that sees a record from which a dead
// reservation was dropped, and not yet the outcome of the pod, must wait.
func TestADroppedReservationRequiresAView(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast() // and sees no pod from now on
	first.round()            // permits web-0
	w.now = w.now.Add(2 * statusInterval)
	first.round() // drops the reservation of web-0
	if record := w.server.rules["x"].Status.Permits; len(record.Reserved) > 0 {
		t.Fatalf("the record is %+v, and should list no pod", record)
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t, "web-0")
}

// TestARequiredViewOutlivesTheNextRecord shows the same when another status was written since.
func TestARequiredViewOutlivesTheNextRecord(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast()
	first.round() // permits web-0
	for range 2 {
		w.now = w.now.Add(2 * statusInterval)
		first.round() // drops the reservation of web-0, and then has fewer pods that wait
		w.request("web-2", func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/a") })
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t, "web-0")
}

// TestADroppedReservationOfADeletedPodRequiresAView shows the same when the pod is deleted
// and there is no version of it to wait for.
func TestADroppedReservationOfADeletedPodRequiresAView(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast()
	first.round()
	w.server.deletePod("web-0")
	w.now = w.now.Add(2 * statusInterval)
	first.round()
	if record := w.server.rules["x"].Status.Permits; len(record.Reserved) > 0 {
		t.Fatalf("the record is %+v, and should list no pod", record)
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t)
}

// TestTwoLeadersMeetAtTheFirstRecord shows that of two replicas that decide for different pods at
// once, one gets a conflict and permits no pod.
func TestTwoLeadersMeetAtTheFirstRecord(t *testing.T) {
	for name, objects := range map[string][]string{
		"one rule": {"x"}, "two rules": {"x", "y"}, "a PodDisruptionBudget": {budgetPrefix + "x"}, "a rule and a PodDisruptionBudget": {"x", budgetPrefix + "a"},
	} {
		for answer, f := range map[string]fate{"a conflict": fateAccepted, "no answer": fateLost} {
			t.Run(name+" and "+answer, func(t *testing.T) {
				w := newStory(t, objects...)
				first, second := w.replicas[0], w.replicas[1]
				second.watchAllButLast()
				first.catchUp()
				first.start()
				second.start()
				first.resume(fateAccepted)
				second.resume(f)
				second.finish()
				first.finish()
				w.expectPermitted(t, "web-0")
			})
		}
	}
}

// TestAStopBetweenRecordsAndPermits shows that the next leader permits the pods that were
// reserved, and no others.
func TestAStopBetweenRecordsAndPermits(t *testing.T) {
	for name, accepted := range map[string]int{
		"before the first record": 0, "between two records": 1, "between records and permit": 2,
	} {
		for _, other := range []string{"y", budgetPrefix + "y"} {
			t.Run(name+" of x and "+other, func(t *testing.T) { stopAndStart(t, accepted, "x", other) })
		}
	}
}

// stopAndStart kills a replica after a number of accepted writes, and lets another take over.
func stopAndStart(t *testing.T, accepted int, objects ...string) {
	t.Helper()
	w := newStory(t, objects...)
	first := w.replicas[0]
	first.catchUp()
	first.start()
	for range accepted {
		first.resume(fateAccepted)
	}
	first.resume(fateKilled)
	next := newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory))
	w.replicas[0] = next
	next.finish()
	w.expectPermitted(t, "web-0")
}

// TestALatePermitChangesNoOtherPod shows that a permit that arrives after its slot was freed finds
// that its pod has moved on.
func TestALatePermitChangesNoOtherPod(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	w.flip("web-0", "go", "yes", "no")
	first.catchUp()
	first.start()
	first.resume(fateAccepted) // the record of x
	first.resume(fateLate)     // the permit of web-0

	spec := *w.server.rules["x"].Spec.DeepCopy()
	marked := ruleOfKind("label", nil, nil)
	marked.Name = "marked"
	spec.Rules = append(spec.Rules, marked)
	w.server.putRule("x", spec)
	for range 2 { // one round frees the slot of web-0, which is withheld now
		second.round()
	}
	for _, apply := range w.late {
		if err := apply(); err == nil {
			t.Error("the late permit was accepted")
		}
	}
	w.expectPermitted(t, "web-1")
}

// TestARuleThatIsDeletedDuringAWriteStaysDeleted has an answer to the write that comes after
// the watch delivered the deletion of the rule.
func TestARuleThatIsDeletedDuringAWriteStaysDeleted(t *testing.T) {
	w := newStory(t, "x")
	first := w.replicas[0]
	first.catchUp()
	first.start()
	stored := first.parked.apply
	first.parked.apply = func() error {
		err := stored()
		w.server.deleteRule("x")
		first.watchRecords()
		return err
	}
	first.finish()
	first.round()
	w.expectPermitted(t, "web-0")

	w.now = w.now.Add(podindex.RetiredFor)
	first.finish()
	w.expectPermitted(t, "web-0", "web-1", "web-2")
}

// TestALeftoverReservationIsCountedAgain has a pod that fails between the reservation of another pod
// and its permit, of which the process has died. The process that takes over sees that, and
// lets the reserved pod wait until the failed one is back, whether or not the rule was
// replaced since. Without the count, the permit is one pod too many.
func TestALeftoverReservationIsCountedAgain(t *testing.T) {
	for name, replaced := range map[string]bool{"under the same rule": false, "under a rule that took its place": true} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t, "x")
			w.request("web-2", func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/a") })
			first, second := w.replicas[0], w.replicas[1]
			first.catchUp()
			first.start()
			first.resume(fateAccepted) // the record of x
			first.resume(fateKilled)
			failed := w.server.pods["web-2"].UID
			w.sick[failed] = true
			w.kubelet("web-2")
			if replaced {
				spec := w.server.rules["x"].Spec
				w.server.deleteRule("x")
				w.server.putRule("x", spec)
			}
			for range 2 { // the first round renews web-0, so that no late permit hits it
				w.now = w.now.Add(2 * statusInterval)
				second.round()
			}
			w.expectPermitted(t, "web-2") // which has failed; web-0 serves

			delete(w.sick, failed)
			for range 3 { // kubelet, PodOps and kubelet bring web-2 back
				w.others()
				w.now = w.now.Add(2 * statusInterval)
				second.round()
			}
			w.expectPermitted(t, "web-1") // which waits for longer than web-0 now, since that was renewed
		})
	}
}

// TestAnUnknownWorkloadKeepsItsBase has two pods of a workload that PodOps does not know, one
// of which may be away. The deleted pod does not lower the bound for the other pod.
func TestAnUnknownWorkloadKeepsItsBase(t *testing.T) {
	w := newSimulation(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, true)
	t.Cleanup(w.close)
	w.addUnknown("web", 2)
	w.server.putRule("x", appsv1alpha1.PodTransitionRuleSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Rules:    []appsv1alpha1.TransitionRule{maxUnavailable("one", 1)},
	})
	start := func() *replica { return newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory)) }
	leader := start()
	w.replicas = []*replica{leader}
	w.begin("web-0", "a", "delete")
	w.begin("web-1", "a", "delete")
	round := func(later time.Duration) {
		w.now = w.now.Add(later)
		leader.round()
	}
	round(0)
	w.expectPermitted(t, "web-0")
	w.server.deletePod("web-0")
	round(time.Second)
	w.expectPermitted(t)

	leader.die()
	leader = start()
	w.replicas[0] = leader
	round(time.Second)
	w.expectPermitted(t) // another process knows it from the record
	if got := w.server.rules["x"].Status.Permits.Owners; len(got) != 1 || got[0].Pods != 2 {
		t.Errorf("the record counts %+v, want 2 pods of one workload", got)
	}

	again := w.newPod("web", "web-0")
	w.server.putPod(again.Obj())
	round(time.Second)
	w.expectPermitted(t, "web-0") // there again, and not serving yet
	w.server.putPod(again.Available().Obj())
	round(time.Second)
	w.expectPermitted(t, "web-1")
}

// TestAWorkloadThatMakesNoPodAgainWantsFewer shows that a scale-in by a controller that PodOps does
// not know goes on after a while.
func TestAWorkloadThatMakesNoPodAgainWantsFewer(t *testing.T) {
	w := newSimulation(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, false)
	t.Cleanup(w.close)
	w.addUnknown("web", 3)
	w.server.putRule("x", appsv1alpha1.PodTransitionRuleSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Rules:    []appsv1alpha1.TransitionRule{maxUnavailable("one", 1)},
	})
	leader := newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory))
	w.replicas = []*replica{leader}
	w.begin("web-0", "a", "delete")
	w.begin("web-1", "a", "delete")
	leader.round()
	w.server.deletePod("web-0")
	leader.round()
	w.now = w.now.Add(evaluation.MissingFor - time.Millisecond)
	leader.round()
	w.expectPermitted(t)
	if leader.due.After(w.now.Add(time.Second)) || leader.due.IsZero() {
		t.Errorf("the next round is due at %s, now is %s", leader.due, w.now)
	}
	w.now = w.now.Add(time.Millisecond)
	for range 2 { // the first one has not seen the annotation that explains why web-1 waited
		leader.round()
	}
	w.expectPermitted(t, "web-1")
}
