package podtransitionrule

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// The schedules that random ones seldom find. Each breaks when the part of the algorithm
// that it is named after is taken out. All bound the pods of one workload to one that
// may be unavailable.

// newStory is a quiet world of three pods that wait, web-0 for the longest time, and of
// two replicas that have seen nothing of it. The very last event is that web-0 asks: it
// was admitted by a replica whose clock is behind.
func newStory(t *testing.T, objects ...string) *world {
	t.Helper()
	w := newWorld(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, true)
	t.Cleanup(w.close)
	w.addOwner("web", 3)
	for _, name := range objects {
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

// watchAllButLast delivers everything but the last event of pods: web-0 serves and asks
// for nothing, and web-1 has waited for the longest time.
func (r *replica) watchAllButLast() {
	r.watchRecords()
	r.watchPods(len(r.world.server.podHistory) - r.pods - 1)
}

func maxUnavailable(name string, most int32) appsv1alpha1.TransitionRule {
	bound := intstr.FromInt32(most)
	rule := ruleOfKind("max", &bound, nil)
	rule.Name = name
	return rule
}

// watchRecords delivers everything but pods.
func (r *replica) watchRecords() { r.watchRules(len(r.world.server.ruleHistory) - r.rules) }

// expectPermitted fails unless just these pods were permitted and do not serve.
func (w *world) expectPermitted(t *testing.T, want ...string) {
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

// TestAReservationCountsInAViewFromBeforeIt: a replica that sees the record and not yet
// the pod as it was reserved must not give the slot away.
func TestAReservationCountsInAViewFromBeforeIt(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast()
	first.catchUp()
	first.start()
	first.resume(fateAccepted) // the record of x; the permit of web-0 is under way

	second.watchRecords()
	second.finish()
	first.finish()
	w.expectPermitted(t, "web-0")
}

// TestADroppedReservationDemandsAView: a replica that sees a record from which a dead
// reservation was dropped, and not yet what became of the pod, must wait.
func TestADroppedReservationDemandsAView(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast() // and sees no pod from now on
	first.catchUp()
	first.finish() // permits web-0
	w.now = w.now.Add(2 * statusInterval)
	first.catchUp()
	first.finish() // drops the reservation of web-0
	if record := w.server.rules["x"].Status.Permits; len(record.Reserved) > 0 {
		t.Fatalf("the record is %+v, and should list nobody", record)
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t, "web-0")
}

// TestADemandOutlivesTheNextRecord: the same when another status was written since.
func TestADemandOutlivesTheNextRecord(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast()
	first.catchUp()
	first.finish() // permits web-0
	for range 2 {
		w.now = w.now.Add(2 * statusInterval)
		first.catchUp()
		first.finish() // drops the reservation of web-0, and then has fewer pods that wait
		w.request("web-2", func(pod *corev1.Pod) { delete(pod.Labels, appsv1alpha1.OperatingLabelPrefix+"/a") })
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t, "web-0")
}

// TestADroppedReservationOfAPodThatIsGoneDemandsAView: the same when the pod is deleted
// and there is no version of it to wait for.
func TestADroppedReservationOfAPodThatIsGoneDemandsAView(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	second.watchAllButLast()
	first.catchUp()
	first.finish()
	w.server.deletePod("web-0")
	w.now = w.now.Add(2 * statusInterval)
	first.catchUp()
	first.finish()
	if record := w.server.rules["x"].Status.Permits; len(record.Reserved) > 0 {
		t.Fatalf("the record is %+v, and should list nobody", record)
	}
	second.watchRecords()
	second.finish()
	w.expectPermitted(t)
}

// TestTwoLeadersMeetAtTheFirstRecord: of two replicas that decide for different pods at
// once, one gets a conflict and permits nobody.
func TestTwoLeadersMeetAtTheFirstRecord(t *testing.T) {
	for name, objects := range map[string][]string{"one rule": {"x"}, "two rules": {"x", "y"}} {
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

// TestAStopBetweenRecordsAndPermits: whoever takes over permits the pods that were
// reserved, and no others.
func TestAStopBetweenRecordsAndPermits(t *testing.T) {
	for name, accepted := range map[string]int{
		"before the first record": 0, "between two records": 1, "between records and permit": 2,
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory(t, "x", "y")
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
		})
	}
}

// TestALatePermitHitsNobodyElse: a permit that arrives after its slot was freed finds
// that its pod has moved on.
func TestALatePermitHitsNobodyElse(t *testing.T) {
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
		second.catchUp()
		second.finish()
	}
	for _, apply := range w.late {
		if err := apply(); err == nil {
			t.Error("the late permit was accepted")
		}
	}
	w.expectPermitted(t, "web-1")
}

// TestARuleThatIsDeletedDuringAWriteStaysDeleted: the answer to the write comes after
// the watch said that the rule is gone.
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
	first.catchUp()
	first.finish()
	w.expectPermitted(t, "web-0", "web-1", "web-2")
}
