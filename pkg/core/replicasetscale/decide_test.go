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

// inRollout is the old ReplicaSet of a rollout with the number of replicas, all available, of which target are to stay.
func inRollout(replicas, target int32, annotations ...string) Snapshot {
	set := revised(1, replicas, replicas)
	for _, key := range annotations {
		set.Annotations[key] = "1"
	}
	newest := revised(2, replicas-target, replicas-target)
	return Snapshot{Set: set, Workload: Workload{Deployment: rolls(replicas, "2", "100%", "0"), Sets: []*appsv1.ReplicaSet{set, newest}}}
}

// ofControlled returns a snapshot whose ReplicaSet has three controlled pods.
func ofControlled(s Snapshot) Snapshot {
	s.Set.Spec.Template.Labels, s.Set.Status.FullyLabeledReplicas = controlled, 3
	return s
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
	const woken, desired, lowest = appsv1alpha1.WokenAnnotationKey, appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey
	now := epoch.Add(time.Hour)
	since := func(age time.Duration, woken int) Waits {
		return Waits{Replicas: 3, LowerableSince: now.Add(-age), Woken: woken}
	}
	alone := func(replicas int32, annotations ...string) Snapshot {
		set := newSet(replicas, map[string]string{})
		for _, key := range annotations {
			set.Annotations[key] = "1"
		}
		return Snapshot{Set: set}
	}
	for name, tc := range map[string]struct {
		snapshot Snapshot
		pods     []*corev1.Pod
		total    int32 // pods of the status
		waits    Waits
		want     Decision
	}{
		"a ReplicaSet without a surplus has nothing to do":       {snapshot: alone(3), pods: three()},
		"nor has an old ReplicaSet whose rollout wants its pods": {snapshot: inRollout(3, 3), pods: three()},
		"as many pods begin as the rollout has too many":         {snapshot: inRollout(3, 1), pods: three(), want: Decision{Begin: 2}},
		"pods that have begun count":                             {snapshot: inRollout(3, 1), pods: three(deleting), want: Decision{Begin: 1}},
		"a missing pod needs no delete": {
			snapshot: inRollout(3, 1), pods: three()[:2], want: Decision{Begin: 1, Wake: WakeAfter},
		},
		"a granted pod lets the Deployment time for its own step": {
			snapshot: inRollout(3, 1), pods: three(granted, deleting), want: Decision{Wake: WakeAfter},
		},
		"then the Deployment is woken": {
			snapshot: inRollout(3, 1), pods: three(granted, deleting), waits: since(WakeAfter, 0),
			want: Decision{Annotations: map[string]any{woken: "2026-01-01T01:00:00Z"}, Wake: WakeAgainAfter},
		},
		"once": {
			snapshot: inRollout(3, 1, woken), pods: three(granted, deleting), waits: since(time.Second, 1), want: Decision{Wake: WakeAgainAfter - time.Second},
		},
		"and again after a while": {
			snapshot: inRollout(3, 1, woken), pods: three(granted, deleting), waits: since(WakeAgainAfter, 1),
			want: Decision{Annotations: map[string]any{woken: "2026-01-01T01:00:00Z"}, Wake: 2 * WakeAgainAfter},
		},
		"pods beyond the replicas begin": {snapshot: alone(3), pods: four(), want: Decision{Begin: 1}},
		"and are deleted by the ReplicaSet controller": {
			snapshot: alone(3), pods: four(granted),
		},
		"not in a ReplicaSet with other pods, whose controller chooses": {snapshot: alone(3), pods: four(), total: 5, want: Decision{Wake: WakeAgainAfter}},
		"a pod that the cache does not have yet is awaited": {
			snapshot: ofControlled(alone(2)), pods: three()[:2], total: 3, want: Decision{Wake: TransferAfter},
		},
		"it may be a pod without the label": {snapshot: alone(2), pods: three()[:2], total: 3, want: Decision{Wake: WakeAgainAfter}},
		"not for a number that is to stay":  {snapshot: alone(3), pods: three()[:2], total: 3},
		"one that was cancelled begins again after a pause": {
			snapshot: alone(3), pods: four(undoneByUser), want: Decision{Wake: FirstPause},
		},
		"also in a rollout": {
			snapshot: inRollout(3, 1), pods: three(undoneByUser, deleting), want: Decision{Wake: FirstPause},
		},
		"annotations are removed when nothing waits": {
			snapshot: alone(3, woken, desired, lowest), pods: three(),
			want: Decision{Annotations: map[string]any{woken: nil, desired: nil, lowest: nil}, Wake: WakeAgainAfter},
		},
		"annotations that come back stay for a while": {
			snapshot: alone(3, desired), pods: three(), waits: Waits{Cleared: 1, ClearAfter: now.Add(time.Second)}, want: Decision{Wake: time.Second},
		},
		"and for longer each time": {
			snapshot: alone(3, desired), pods: three(), waits: Waits{Cleared: 1, ClearAfter: now},
			want: Decision{Annotations: map[string]any{desired: nil}, Wake: 2 * WakeAgainAfter},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.snapshot.Pods, tc.snapshot.Set.Status.Replicas = tc.pods, max(tc.total, int32(active(tc.pods)))
			got, _ := Decide(tc.snapshot, tc.waits, now)
			got.Unpin = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsThatAReplicaSetDoesNotCountYet has the cache show a pod before the number of replicas for which it was created.
func TestPodsThatAReplicaSetDoesNotCountYet(t *testing.T) {
	snapshot := Snapshot{Set: newSet(2, nil), Pods: []*corev1.Pod{runs("a"), runs("b"), runs("c"), runs("d")}}
	for counted, want := range map[int32]int{2: 0, 3: 1, 4: 2} {
		snapshot.Set.Status.Replicas = counted
		if got, _ := Decide(snapshot, Waits{}, epoch); got.Begin != want {
			t.Errorf("%d deletions begin of a ReplicaSet that counts %d pods, want %d", got.Begin, counted, want)
		}
	}
}

func TestDecideRestoresTheCostOfUndonePods(t *testing.T) {
	got, _ := Decide(Snapshot{Set: newSet(2, nil), Pods: []*corev1.Pod{runs("a", undoneByUser), runs("b", deleting)}}, Waits{}, epoch)
	if diff := cmp.Diff([]string{"a"}, names(got.Unpin)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestPodsThatAreGrantedOneByOneDoNotDelayTheWake(t *testing.T) {
	snapshot, waits := inRollout(3, 0), Waits{}
	step := func(after time.Duration, changes ...func(*corev1.Pod)) Decision {
		var decision Decision
		snapshot.Pods = []*corev1.Pod{runs("a"), runs("b"), runs("c")}
		for i, change := range changes {
			change(snapshot.Pods[i])
		}
		decision, waits = Decide(snapshot, waits, epoch.Add(after))
		return decision
	}
	step(0, granted)
	step(WakeAfter/2, granted, granted)
	if got := step(WakeAfter, granted, granted, granted); len(got.Annotations) != 1 {
		t.Errorf("decision %+v, want a wake", got)
	}
}

// TestASurplusThatStays counts, for an hour, how often deletions begin that are cancelled: a second later, or a minute
// after they were permitted, since another webhook denies the updates of the ReplicaSet.
func TestASurplusThatStays(t *testing.T) {
	permitted := func(pod *corev1.Pod) {
		deleting(pod)
		label(pod, appsv1alpha1.OperateLabelPrefix)
	}
	for name, tc := range map[string]struct {
		snapshot Snapshot
		edit     func(*corev1.Pod)
		seconds  int
	}{
		"a rollout, never permitted":  {inRollout(4, 2), deleting, 1},
		"a scale-in, never permitted": {Snapshot{Set: newSet(2, nil)}, deleting, 1},
		"a rollout, never removed":    {inRollout(4, 2), permitted, 60},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := tc.snapshot
			snapshot.Pods, snapshot.Set.Status.Replicas = []*corev1.Pod{runs("a"), runs("b"), runs("c"), runs("d")}, 4
			waits, begun, began := Waits{}, 0, 0
			for second := range 3600 {
				now := epoch.Add(time.Duration(second) * time.Second)
				for _, pod := range snapshot.Pods {
					if IsDeleting(pod) && second-began >= tc.seconds {
						pod.Labels = nil // cancelled
					}
				}
				var decision Decision
				decision, waits = Decide(snapshot, waits, now)
				for _, pod := range decision.Unpin {
					pod.Annotations = nil
				}
				for _, pod := range snapshot.Pods[:decision.Begin] {
					tc.edit(pod)
					begun, began = begun+1, second
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

// TestAPauseAfterPodsLeftIsAFirstPause has one pod of two leave after two pauses.
func TestAPauseAfterPodsLeftIsAFirstPause(t *testing.T) {
	snapshot := Snapshot{Set: newSet(1, nil), Pods: []*corev1.Pod{runs("a", undoneByUser), runs("b"), runs("c")}}
	snapshot.Set.Status.Replicas = 3
	_, waits := Decide(snapshot, Waits{}, epoch)
	_, waits = Decide(snapshot, waits, epoch.Add(FirstPause))
	snapshot.Pods, snapshot.Set.Status.Replicas = []*corev1.Pod{runs("b"), runs("c")}, 2
	_, waits = Decide(snapshot, waits, epoch.Add(FirstPause+time.Second))
	snapshot.Pods = []*corev1.Pod{runs("b", undoneByUser), runs("c")}
	if got, _ := Decide(snapshot, waits, epoch.Add(time.Hour)); got.Wake != FirstPause {
		t.Errorf("the pause takes %v, want %v", got.Wake, FirstPause)
	}
}

// TestADeletionInAnotherReplicaSetIsNotBegunTwice has a pod of a revision between the old and the newest one become available while
// its deletion waits: the step of the rollout is for the older revision then.
func TestADeletionInAnotherReplicaSetIsNotBegunTwice(t *testing.T) {
	oldest, between, newest := revised(1, 4, 4), revised(2, 1, 1), revised(3, 0, 0)
	workload := Workload{Deployment: rolls(4, "3", "1", "1"), Sets: []*appsv1.ReplicaSet{oldest, between, newest}}
	owned := func(set *appsv1.ReplicaSet, pods ...*corev1.Pod) []*corev1.Pod {
		for _, pod := range pods {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: set.UID, Controller: new(true)}}
		}
		return pods
	}
	pods := owned(oldest, runs("a", deleting), runs("b"), runs("c"), runs("d"))
	for name, tc := range map[string]struct {
		between *corev1.Pod
		want    Decision
	}{
		"while it waits for its cancellation": {between: runs("e", deleting), want: Decision{Wake: TransferAfter}},
		"once it is cancelled":                {between: runs("e"), want: Decision{Begin: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			workload.Pods = append(owned(between, tc.between), pods...)
			got, _ := Decide(Snapshot{Set: oldest, Workload: workload, Pods: pods}, Waits{}, epoch)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPausesEndWithTheirSurplus(t *testing.T) {
	kept, none := inRollout(3, 2), inRollout(3, 3)
	again := kept
	kept.Pods = []*corev1.Pod{runs("a", undoneByUser), runs("b"), runs("c")}
	none.Pods = []*corev1.Pod{runs("a"), runs("b"), runs("c")}
	again.Pods = none.Pods
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
