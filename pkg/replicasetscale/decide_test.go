package replicasetscale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func label(pod *corev1.Pod, prefix string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[prefix+"/"+appsv1alpha1.PodDeleteID] = "1"
}

func deleting(pod *corev1.Pod) {
	label(pod, appsv1alpha1.OperatingLabelPrefix)
	cost(begunCost)(pod)
	pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey] = ""
}

func granted(pod *corev1.Pod) {
	deleting(pod)
	unready(pod)
	label(pod, appsv1alpha1.OperateLabelPrefix)
	cost(CostOnGrant(pod, pod.Labels))(pod)
}

func undoneByUser(pod *corev1.Pod) {
	deleting(pod)
	pod.Labels = nil
}

func TestDecide(t *testing.T) {
	three := func(changes ...func(*corev1.Pod)) []*corev1.Pod {
		pods := []*corev1.Pod{runs("a"), runs("b"), runs("c")}
		for i, change := range changes {
			change(pods[i])
		}
		return pods
	}
	four := func(changes ...func(*corev1.Pod)) []*corev1.Pod { return append(three(changes...), runs("d")) }
	const wanted, lowest = appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey
	both := map[string]string{wanted: "1", lowest: "2"}
	old := Workload{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision("2")}}}
	for name, tc := range map[string]struct {
		annotations map[string]string
		workload    Workload
		pods        []*corev1.Pod
		total       int32         // pods of the status
		lowerable   time.Duration // for how long; -1: not yet
		void        time.Duration // for how long; -1: not yet
		want        Decision
	}{
		"without a demand there is nothing to do": {pods: three(), lowerable: -1, void: -1},
		"as many pods begin as were requested": {
			annotations: desired("1"), workload: old, pods: three(), lowerable: -1, void: -1, want: Decision{Begin: 2},
		},
		"pods that have begun count": {
			annotations: desired("1"), workload: old, pods: three(deleting), lowerable: -1, void: -1, want: Decision{Begin: 1},
		},
		"a missing pod needs no delete": {
			annotations: desired("1"), workload: old, pods: three()[:2], lowerable: -1, void: -1, want: Decision{Begin: 1, Wake: WakeAfter},
		},
		"a granted pod lets the Deployment time for its own step": {
			annotations: desired("1"), workload: old, pods: three(granted, deleting), lowerable: -1, void: -1, want: Decision{Wake: WakeAfter},
		},
		"then the Deployment is woken": {
			annotations: desired("1"), workload: old, pods: three(granted, deleting), lowerable: WakeAfter, void: -1,
			want: Decision{Annotations: map[string]any{lowest: "2"}, Wake: LowerAfter - WakeAfter},
		},
		"once": {
			annotations: both, workload: old, pods: three(granted, deleting), lowerable: time.Second, void: -1, want: Decision{Wake: LowerAfter - time.Second},
		},
		"and again for the next pod": {
			annotations: both, workload: old, pods: three(granted, granted), lowerable: time.Second, void: -1,
			want: Decision{Annotations: map[string]any{lowest: "1"}, Wake: LowerAfter - time.Second},
		},
		"without its step the ReplicaSet is lowered": {
			annotations: both, workload: old, pods: three(granted, deleting), lowerable: LowerAfter, void: -1,
			want: Decision{Lower: new(2), Annotations: map[string]any{lowest: nil}},
		},
		"pods beyond the replicas begin": {
			pods: four(), lowerable: -1, void: -1, want: Decision{Begin: 1},
		},
		"and are deleted by the ReplicaSet controller": {
			pods: four(granted), lowerable: -1, void: -1,
		},
		"not in a ReplicaSet with other pods, whose controller chooses": {
			pods: four(), total: 5, lowerable: -1, void: -1,
		},
		"one that was cancelled begins again after a pause": {
			pods: four(undoneByUser), lowerable: -1, void: -1, want: Decision{Wake: FirstPause},
		},
		"a demand of a ReplicaSet alone is void": {
			annotations: desired("1"), pods: three(), lowerable: -1, void: ClearAfter, want: Decision{Annotations: map[string]any{wanted: nil}},
		},
		"a deletion that was cancelled begins again after a pause": {
			annotations: desired("1"), workload: old, pods: three(undoneByUser, deleting), lowerable: -1, void: -1,
			want: Decision{Wake: FirstPause},
		},
		"a grant that was undone is withdrawn": {
			annotations: both, workload: old, pods: three(deleting, deleting), lowerable: time.Second, void: -1,
			want: Decision{Annotations: map[string]any{lowest: nil}},
		},
		"a demand may be void for a moment": {
			annotations: desired("3"), pods: three(), lowerable: -1, void: -1, want: Decision{Wake: ClearAfter},
		},
		"a void demand is removed": {
			annotations: map[string]string{wanted: "3", lowest: "2"}, pods: three(), lowerable: -1, void: ClearAfter,
			want: Decision{Annotations: map[string]any{wanted: nil, lowest: nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := epoch.Add(time.Hour)
			waits := Waits{}
			if tc.lowerable >= 0 {
				waits = Waits{Replicas: 3, LowerableSince: now.Add(-tc.lowerable)}
			}
			if tc.void >= 0 {
				waits = Waits{VoidSince: now.Add(-tc.void)}
			}
			set := newSet(3, tc.annotations)
			set.Status.Replicas = tc.total
			got, _ := Decide(Snapshot{Set: set, Workload: tc.workload, Pods: tc.pods}, waits, now)
			got.Unpin = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideRestoresTheCostOfUndonePods(t *testing.T) {
	got, _ := Decide(Snapshot{Set: newSet(2, nil), Pods: []*corev1.Pod{runs("a", undoneByUser), runs("b", deleting)}}, Waits{}, epoch)
	if diff := cmp.Diff([]string{"a"}, names(got.Unpin)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestTheTimeToLowerDoesNotRestart(t *testing.T) {
	workload := Workload{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision("2")}}}
	set := newSet(3, desired("0"))
	_, waits := Decide(Snapshot{Set: set, Workload: workload, Pods: []*corev1.Pod{runs("a", granted), runs("b"), runs("c")}}, Waits{}, epoch)
	_, waits = Decide(Snapshot{Set: set, Workload: workload, Pods: []*corev1.Pod{runs("a", granted), runs("b", granted), runs("c")}}, waits, epoch.Add(6*time.Second))
	got, _ := Decide(Snapshot{Set: set, Workload: workload, Pods: []*corev1.Pod{runs("a", granted), runs("b", granted), runs("c")}}, waits, epoch.Add(LowerAfter))
	if got.Lower == nil || *got.Lower != 1 {
		t.Errorf("decision %+v, want 1 replica: pods that are granted one by one must not delay the first", got)
	}
}

// TestASurplusThatIsNeverPermitted counts, for an hour, how often deletions begin that are cancelled a second
// later.
func TestASurplusThatIsNeverPermitted(t *testing.T) {
	for name, snapshot := range map[string]Snapshot{
		"a rollout": {
			Set: newSet(4, desired("2")), Workload: Workload{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision("2")}}},
		},
		"a scale-in": {Set: newSet(2, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot.Pods = []*corev1.Pod{runs("a"), runs("b"), runs("c"), runs("d")}
			waits, begun := Waits{}, 0
			for second := range 3600 {
				now := epoch.Add(time.Duration(second) * time.Second)
				for _, pod := range snapshot.Pods {
					if IsDeleting(pod) {
						pod.Labels = nil // cancelled
					}
				}
				var decision Decision
				decision, waits = Decide(snapshot, waits, now)
				for _, pod := range decision.Unpin {
					pod.Annotations = nil
				}
				for _, pod := range snapshot.Pods[:decision.Begin] {
					deleting(pod)
					begun++
				}
			}
			// Pauses of 10, 20, 40, ... seconds up to 10 minutes: 11 times two pods.
			t.Logf("%d deletions begun", begun)
			if begun < 2 || begun > 2*12 {
				t.Errorf("%d deletions begun in an hour", begun)
			}
		})
	}
}

func TestPausesEndWithTheirDemand(t *testing.T) {
	workload := Workload{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: revision("2")}}}
	kept := Snapshot{Set: newSet(3, desired("2")), Workload: workload, Pods: []*corev1.Pod{runs("a", undoneByUser), runs("b"), runs("c")}}
	none := Snapshot{Set: newSet(3, nil), Workload: workload, Pods: []*corev1.Pod{runs("a"), runs("b"), runs("c")}}
	again := Snapshot{Set: kept.Set, Workload: workload, Pods: none.Pods}
	_, waits := Decide(kept, Waits{}, epoch)
	_, waits = Decide(none, waits, epoch.Add(time.Second))
	if got, _ := Decide(again, waits, epoch.Add(2*time.Second)); got.Begin != 0 || got.Wake != FirstPause-2*time.Second {
		t.Errorf("decision %+v, want none before the pause is over", got)
	}
	got, waits := Decide(none, waits, epoch.Add(time.Second+ForgetAfter))
	if diff := cmp.Diff(Waits{}, waits); diff != "" || got.Wake != 0 {
		t.Errorf("decision %+v, remembers (-want +got):\n%s", got, diff)
	}
}
