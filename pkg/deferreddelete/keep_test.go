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

// promised is a pod whose delete is under way, so far as the prefix says.
func promised(name, begun, prefix string) *corev1.Pod {
	pod := plain(name)
	pod.Labels = map[string]string{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID: begun,
		prefix + "/" + appsv1alpha1.PodDeleteID:                            "1",
	}
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

func namesOf(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func TestKeep(t *testing.T) {
	tests := map[string]struct {
		replicas       int
		pods           []*corev1.Pod
		kept, unwanted []string
		room           int
	}{
		"nothing is too many": {replicas: 2, pods: []*corev1.Pod{plain("a"), plain("b")}},
		"one too many has use for a promise": {
			replicas: 1, pods: []*corev1.Pod{plain("a"), plain("b")}, room: 1,
		},
		"a promise that is wanted is kept": {
			replicas: 1, pods: []*corev1.Pod{plain("a"), promised("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, kept: []string{"b"},
		},
		"what is furthest along is kept first, whoever began first": {
			replicas: 2, kept: []string{"c"}, unwanted: []string{"b", "a"},
			pods: []*corev1.Pod{
				promised("a", "1", appsv1alpha1.PreCheckLabelPrefix),
				promised("b", "2", appsv1alpha1.PrepareLabelPrefix),
				promised("c", "3", appsv1alpha1.OperateLabelPrefix),
			},
		},
		"of equals the one that began first is kept": {
			replicas: 1, kept: []string{"b"}, unwanted: []string{"a"},
			pods: []*corev1.Pod{
				promised("a", "2", appsv1alpha1.PrepareLabelPrefix),
				promised("b", "1", appsv1alpha1.PrepareLabelPrefix),
			},
		},
		"pods on their way out are not counted": {
			replicas: 1, pods: []*corev1.Pod{terminatingPod("a"), promised("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, unwanted: []string{"b"},
		},
		"an owner scaled to nothing wants them all gone": {
			replicas: 0, pods: []*corev1.Pod{plain("a"), promised("b", "1", appsv1alpha1.PreCheckLabelPrefix)}, kept: []string{"b"}, room: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Keep(tc.replicas, tc.pods)
			if diff := cmp.Diff(tc.kept, namesOf(got.Kept)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.unwanted, namesOf(got.Unwanted)); diff != "" {
				t.Errorf("unwanted (-want +got):\n%s", diff)
			}
			if got.Room != tc.room {
				t.Errorf("room = %d, want %d", got.Room, tc.room)
			}
		})
	}
}

// Whatever the pods: no more promises are kept than there are pods too many, every
// promise is either kept or unwanted, and the order of the pods means nothing.
func TestKeepNeverDeletesTooMany(t *testing.T) {
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
				pods, under = append(pods, promised(name, "1", appsv1alpha1.PreCheckLabelPrefix)), under+1
			case 3:
				pods, under = append(pods, promised(name, "2", appsv1alpha1.PrepareLabelPrefix)), under+1
			case 4:
				pods, under = append(pods, promised(name, "3", appsv1alpha1.OperateLabelPrefix)), under+1
			}
		}
		replicas := rapid.IntRange(0, 12).Draw(t, "replicas")
		got := Keep(replicas, pods)
		active := 0
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil {
				active++
			}
		}
		if left := active - len(got.Kept) - got.Room; left < min(active, replicas) {
			t.Fatalf("%d of %d pods would be left, %d are wanted", left, active, replicas)
		}
		if len(got.Kept)+len(got.Unwanted) != under {
			t.Fatalf("%d kept and %d unwanted of %d promises", len(got.Kept), len(got.Unwanted), under)
		}
		reversed := slices.Clone(pods)
		slices.Reverse(reversed)
		if diff := cmp.Diff(namesOf(got.Kept), namesOf(Keep(replicas, reversed).Kept)); diff != "" {
			t.Fatalf("the order of the pods matters (-one way +the other):\n%s", diff)
		}
	})
}
