package podtransitionrule

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/evaluation"
	"github.com/podops-dev/podops/pkg/podindex"
)

func TestDesiredOfAJob(t *testing.T) {
	ended := func(kind batchv1.JobConditionType) batchv1.JobStatus {
		return batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}}
	}
	for name, tc := range map[string]struct {
		spec   batchv1.JobSpec
		status batchv1.JobStatus
		want   int
	}{
		"of the defaults": {spec: batchv1.JobSpec{Completions: ptr.To[int32](1)}, want: 1},
		"parallelism below completions": {
			spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)}, status: batchv1.JobStatus{Succeeded: 2}, want: 3,
		},
		"few completions are left": {
			spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)}, status: batchv1.JobStatus{Succeeded: 8}, want: 2,
		},
		"pods have succeeded that are not yet in the number": {
			spec:   batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](10)},
			status: batchv1.JobStatus{Succeeded: 8, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}}}, want: 1,
		},
		"indexes have failed": {
			spec:   batchv1.JobSpec{Parallelism: ptr.To[int32](9), Completions: ptr.To[int32](10)},
			status: batchv1.JobStatus{FailedIndexes: ptr.To("1,3-5,7")}, want: 5,
		},
		"a queue":               {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, want: 4},
		"a queue that runs dry": {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](4)}, status: batchv1.JobStatus{Succeeded: 1, Active: 2}, want: 2},
		"parallelism of 0":      {spec: batchv1.JobSpec{Parallelism: ptr.To[int32](0), Completions: ptr.To[int32](1)}},
		"suspended":             {spec: batchv1.JobSpec{Suspend: ptr.To(true), Completions: ptr.To[int32](1)}},
		"complete":              {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobComplete)},
		"failed":                {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobFailed)},
		"about to fail":         {spec: batchv1.JobSpec{Completions: ptr.To[int32](2)}, status: ended(batchv1.JobFailureTarget)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := desiredOfJob(&batchv1.Job{Spec: tc.spec, Status: tc.status}); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestIndexesInAList(t *testing.T) {
	for list, want := range map[string]int{"": 0, "3": 1, "1,3-5,7": 5, "0-9": 10, "x,2-y,5-3": 0} {
		if got := indexesIn(list); got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
}

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

// TestAMissingPodOfAScaledOwnerCountsAsLongAsItIsWanted: however long its controller takes, the other of two
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

// TestAMissingPodOfAnUnreadableOwnerCountsForAWhile: and the rule has a condition meanwhile.
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
