package deferreddelete

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// deferred returns a pod whose delete is in progress, in the phase of the prefix.
func deferred(name, begun, prefix string) *corev1.Pod {
	pod := plain(name)
	pod.Labels = map[string]string{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID: begun,
		prefix + "/" + appsv1alpha1.PodDeleteID:                            "1",
	}
	record := Request{Method: MethodDelete, Actor: ActorOwner}.Begin(pod, begun)
	pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: Encode(record)}
	return pod
}

func plain(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

func terminatingPod(name string) *corev1.Pod {
	now := metav1.Now()
	pod := plain(name)
	pod.DeletionTimestamp = &now
	return pod
}

func evictedByKubelet(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodFailed
	return pod
}

func namesOf(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func TestPlanFor(t *testing.T) {
	tests := map[string]struct {
		replicas     int
		pods         []*corev1.Pod
		keep, cancel []string
		free         int
	}{
		"no surplus": {replicas: 2, pods: []*corev1.Pod{plain("a"), plain("b")}},
		"a surplus of one may begin a delete": {
			replicas: 1, pods: []*corev1.Pod{plain("a"), plain("b")}, free: 1,
		},
		"a delete of the surplus is keep": {
			replicas: 1, pods: []*corev1.Pod{plain("a"), deferred("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, keep: []string{"b"},
		},
		"the delete with the most progress is keep first, not the oldest": {
			replicas: 2, keep: []string{"c"}, cancel: []string{"b", "a"},
			pods: []*corev1.Pod{
				deferred("a", "1", appsv1alpha1.PreCheckLabelPrefix),
				deferred("b", "2", appsv1alpha1.PrepareLabelPrefix),
				deferred("c", "3", appsv1alpha1.OperateLabelPrefix),
			},
		},
		"a pod that has ended is not deleted any more": {
			replicas: 1, pods: []*corev1.Pod{plain("a"), evictedByKubelet(deferred("b", "1", appsv1alpha1.PreCheckLabelPrefix))}, cancel: []string{"b"},
		},
		"of equal progress the oldest is keep": {
			replicas: 1, keep: []string{"b"}, cancel: []string{"a"},
			pods: []*corev1.Pod{
				deferred("a", "2", appsv1alpha1.PrepareLabelPrefix),
				deferred("b", "1", appsv1alpha1.PrepareLabelPrefix),
			},
		},
		"terminating pods are not counted": {
			replicas: 1, pods: []*corev1.Pod{terminatingPod("a"), deferred("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, cancel: []string{"b"},
		},
		"an owner scaled to zero keeps all deletes": {
			replicas: 0, pods: []*corev1.Pod{plain("a"), deferred("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, keep: []string{"b"}, free: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := PlanFor(tc.replicas, 0, tc.pods)
			if diff := cmp.Diff(tc.keep, namesOf(got.Keep)); diff != "" {
				t.Errorf("keep (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.cancel, namesOf(got.Cancel)); diff != "" {
				t.Errorf("cancel (-want +got):\n%s", diff)
			}
			if got.Free != tc.free {
				t.Errorf("free = %d, want %d", got.Free, tc.free)
			}
		})
	}
}

func TestPlanOfScaleDowns(t *testing.T) {
	scaled := func(pod *corev1.Pod) *corev1.Pod {
		pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: ""}
		return pod
	}
	waits := func(name string) *corev1.Pod { return deferred(name, "1", appsv1alpha1.PreCheckLabelPrefix) }
	foreign := waits("foreign")
	foreign.Annotations = nil
	deleted := scaled(waits("deleted"))
	deleted.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = Encode(Request{Method: MethodDelete, Actor: ActorClient}.Begin(deleted, "1"))
	got := PlanFor(4, 0, []*corev1.Pod{scaled(waits("a")), scaled(waits("b")), foreign, deleted, plain("c"), plain("d")})
	want := Plan{Keep: got.Keep, Free: 0}
	if diff := cmp.Diff([]string{"a", "b"}, namesOf(got.Keep)); diff != "" {
		t.Errorf("keep, without the deletes of others (-want +got):\n%s", diff)
	}
	if len(got.Cancel) > 0 || got.Free != want.Free {
		t.Errorf("plan %+v, want %+v: as many as it has too many", got, want)
	}
	if got := PlanFor(6, 0, []*corev1.Pod{scaled(waits("a")), foreign, deleted}); len(got.Cancel) != 1 || got.Cancel[0].Name != "a" {
		t.Errorf("cancels %v, want a alone: another controller and a client began the others", namesOf(got.Cancel))
	}
}

// TestPlanNeverDeletesTooMany shows that no more deletes are kept than there is surplus, that every
// delete is either kept or cancelled, and that the order of the pods does not matter.
func TestPlanNeverDeletesTooMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []*corev1.Pod
		under := 0
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			name := string(rune('a' + i))
			switch rapid.IntRange(0, 4).Draw(t, "state") {
			case 0:
				pods = append(pods, plain(name))
			case 1:
				pods = append(pods, terminatingPod(name))
			case 2:
				pods, under = append(pods, deferred(name, "1", appsv1alpha1.PreCheckLabelPrefix)), under+1
			case 3:
				pods, under = append(pods, deferred(name, "2", appsv1alpha1.PrepareLabelPrefix)), under+1
			case 4:
				pods, under = append(pods, deferred(name, "3", appsv1alpha1.OperateLabelPrefix)), under+1
			}
		}
		replicas := rapid.IntRange(0, 12).Draw(t, "replicas")
		got := PlanFor(replicas, 0, pods)
		active := 0
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil {
				active++
			}
		}
		if left := active - len(got.Keep) - got.Free; left < min(active, replicas) {
			t.Fatalf("%d of %d pods would remain, want %d", left, active, replicas)
		}
		if len(got.Keep)+len(got.Cancel) != under {
			t.Fatalf("%d kept and %d cancelled of %d deletes", len(got.Keep), len(got.Cancel), under)
		}
		reversed := slices.Clone(pods)
		slices.Reverse(reversed)
		if diff := cmp.Diff(namesOf(got.Keep), namesOf(PlanFor(replicas, 0, reversed).Keep)); diff != "" {
			t.Fatalf("the order of the pods matters (-one way +the other):\n%s", diff)
		}
	})
}

func TestPlanForPodsThatAreNotControlled(t *testing.T) {
	got := PlanFor(2, 2, []*corev1.Pod{plain("a")})
	if !got.Mixed || got.Free != 1 {
		t.Errorf("plan %+v, want one delete, which its controller carries out", got)
	}
	if uniform := PlanFor(2, 0, []*corev1.Pod{plain("a"), plain("b"), plain("c")}); uniform.Mixed || uniform.Free != 1 {
		t.Errorf("plan %+v of controlled pods only", uniform)
	}
}
