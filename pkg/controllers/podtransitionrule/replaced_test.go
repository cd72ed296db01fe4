package podtransitionrule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Schedules in which a PodTransitionRule is deleted and created again.

// TestARuleThatIsReplacedPermitsNoPod shows that the pods that a rule withholds stay withheld from its deletion
// to the creation of a PodTransitionRule of the same name, which counts the earlier permits.
func TestARuleThatIsReplacedPermitsNoPod(t *testing.T) {
	w := newStory(t, "x")
	leader := w.replicas[0]
	leader.round()
	w.expectPermitted(t, "web-0")

	spec := w.server.rules["x"].Spec
	w.server.deleteRule("x")
	w.now = w.now.Add(podindex.RetiredFor - time.Millisecond)
	leader.round()
	w.now = w.now.Add(podindex.RetiredFor - time.Millisecond)
	leader.finish()
	w.expectPermitted(t, "web-0")

	w.server.putRule("x", spec)
	w.now = w.now.Add(podindex.RetiredFor)
	leader.round()
	w.expectPermitted(t, "web-0")
}

// TestARuleInheritsWhatWasReservedUnderItsName has a permit that was reserved under a rule, and is
// on its way while the rule is replaced.
func TestARuleInheritsWhatWasReservedUnderItsName(t *testing.T) {
	w := newStory(t, "x")
	first, second := w.replicas[0], w.replicas[1]
	first.catchUp()
	first.start()
	first.resume(fateAccepted) // the record of x; the permit of web-0 is under way

	spec := w.server.rules["x"].Spec
	w.server.deleteRule("x")
	w.server.putRule("x", spec)
	second.catchUp()
	second.start()
	if record := w.server.rules["x"].Status.Permits; record != nil {
		t.Fatalf("the new rule has the record %+v already", record)
	}
	second.resume(fateAccepted)
	if record := w.server.rules["x"].Status.Permits; record == nil || len(record.Reserved) != 1 || record.Reserved[0].Name != "web-0" {
		t.Errorf("the record is %+v, want it to list web-0 before that is permitted", record)
	}
	w.expectPermitted(t)
	second.finish()
	first.finish()
	w.expectPermitted(t, "web-0")
}

// TestAProcessThatStartsWhileARuleIsGone shows that it takes in the deletion before it has listed the
// pods, and holds them all the same.
func TestAProcessThatStartsWhileARuleIsGone(t *testing.T) {
	w := newStory(t, "x")
	spec := w.server.rules["x"].Spec
	w.server.deleteRule("x")
	next := newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory)) // rules come first
	w.replicas = append(w.replicas, next)
	next.finish()
	w.expectPermitted(t)
	w.server.putRule("x", spec)
	next.round()
	w.expectPermitted(t, "web-0")
}

// TestADeletedRuleHoldsUnavailablePodsOfAnUnknownWorkload matters because a pod that does not serve needs no
// slot, but once it is gone only a record has it as a pod of its workload. While the rule is
// replaced there is no record to write to.
func TestADeletedRuleHoldsUnavailablePodsOfAnUnknownWorkload(t *testing.T) {
	w := newSimulation(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, true)
	t.Cleanup(w.close)
	w.addUnknown("web", 2)
	w.server.putPod(w.newPod("web", "web-2").Obj()) // starts
	spec := appsv1alpha1.PodTransitionRuleSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Rules:    []appsv1alpha1.TransitionRule{maxUnavailable("one", 1)},
	}
	w.server.putRule("x", spec)
	leader := newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory))
	w.replicas = []*replica{leader}
	w.server.deleteRule("x")
	w.begin("web-2", "a", "delete")
	leader.round()
	waits := func() bool { return len(lifecycle.WaitingIDs(lifecycle.NewPodFacts(w.server.pods["web-2"]))) > 0 }
	if !waits() {
		t.Error("web-2 is permitted while the rule is gone")
	}
	w.server.putRule("x", spec)
	leader.round()
	if waits() {
		t.Error("web-2 is not permitted under the new rule")
	}
	if record := w.server.rules["x"].Status.Permits; record == nil || len(record.Owners) != 1 || record.Owners[0].Pods != 3 {
		t.Errorf("the record is %+v, want 3 pods of one workload", record)
	}
}
