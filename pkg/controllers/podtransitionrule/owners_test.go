package podtransitionrule

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// scaledStory is a CloneSet of two pods under "at most one unavailable". One of them was permitted to go, is
// gone, and is not created again; the other one waits.
type scaledStory struct {
	*simulation
	leader *replica
	owner  podindex.Owner
}

func newScaledStory(t *testing.T) *scaledStory {
	t.Helper()
	w := newSimulation(t, newTestEngine(t), &seen{metrics: newMetrics(t)}, false)
	t.Cleanup(w.close)
	w.addUnknown("web", 2)
	w.server.putRule("x", appsv1alpha1.PodTransitionRuleSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Rules:    []appsv1alpha1.TransitionRule{maxUnavailable("one", 1)},
	})
	s := &scaledStory{simulation: w, leader: newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory))}
	w.replicas = []*replica{s.leader}
	for uid, owner := range w.unknown {
		s.owner = podindex.Owner{UID: uid, Namespace: owner.Namespace, Kind: owner.Kind, Name: owner.Name, Scale: true}
	}
	s.scale(2, 2)
	w.begin("web-0", "a", "delete")
	w.begin("web-1", "a", "delete")
	s.round(2)
	w.expectPermitted(t, "web-0")
	w.server.deletePod("web-0")
	s.round(2)
	w.expectPermitted(t)
	return s
}

// scale delivers the numbers of the scale.
func (s *scaledStory) scale(desired, observed int) {
	s.owner.Desired, s.owner.Observed, s.owner.Uncounted, s.owner.Unreadable = desired, observed, false, ""
	s.leader.index.SetOwner(s.owner)
}

// lose makes the scale unreadable.
func (s *scaledStory) lose(why string) {
	s.owner.Uncounted, s.owner.Unreadable = true, why
	s.leader.index.SetOwner(s.owner)
}

func (s *scaledStory) round(times int) {
	for range times {
		s.leader.catchUp()
		s.leader.finish()
	}
}

// TestAMissingPodOfAScaledOwnerCountsAsLongAsItIsWanted shows that however long its controller takes, the other of two
// pods is not permitted; once it wants one pod only, the other one is.
func TestAMissingPodOfAScaledOwnerCountsAsLongAsItIsWanted(t *testing.T) {
	s := newScaledStory(t)
	s.scale(2, 1)
	s.now = s.now.Add(time.Hour)
	s.round(2)
	s.expectPermitted(t)
	s.scale(0, 1)
	s.round(2)
	s.expectPermitted(t, "web-1")
}

// TestAMissingPodOfAnUnreadableOwnerCountsForAWhile shows this, and that the rule has a condition meanwhile.
func TestAMissingPodOfAnUnreadableOwnerCountsForAWhile(t *testing.T) {
	s := newScaledStory(t)
	s.lose("forbidden")
	s.round(2)
	s.now = s.now.Add(evaluation.UnreadableFor - time.Millisecond)
	s.round(2)
	s.expectPermitted(t)
	condition := func() *metav1.Condition {
		return meta.FindStatusCondition(s.server.rules["x"].Status.Conditions, appsv1alpha1.ConditionOwnersCounted)
	}
	if got := condition(); got == nil || got.Reason != appsv1alpha1.ReasonOwnerUnreadable || !strings.HasPrefix(got.Message, "CloneSet web: forbidden; ") {
		t.Errorf("condition: %v", got)
	}
	s.scale(2, 1)
	s.now = s.now.Add(time.Hour)
	s.round(3)
	s.expectPermitted(t)
	if got := condition(); got != nil {
		t.Errorf("condition once it is readable: %v", got)
	}
	s.lose("forbidden")
	s.round(2)
	s.now = s.now.Add(evaluation.UnreadableFor)
	s.round(2)
	s.expectPermitted(t, "web-1")
}
