package replicasetscale

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
)

func TestReleased(t *testing.T) {
	orphan := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := granted("web-0")
		pod.OwnerReferences = nil
		change(pod)
		return pod
	}
	const undo = `"undo-operation-type.podopslifecycle.kusionstack.io/pod-delete":"delete"`
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string // parts of the one request; nil for no request
	}{
		"an orphan goes back into service": {
			pod: orphan(func(*corev1.Pod) {}), want: []string{`"previous-deletion-cost":null`, strings.ReplaceAll(undo, "podopslifecycle.kusionstack.io/", "")},
		},
		"a pod of a ReplicaSet is left": {pod: granted("web-0")},
		"a pod that no ReplicaSet was to lose is left": {
			pod: orphan(func(pod *corev1.Pod) { delete(pod.Annotations, appsv1alpha1.PreviousDeletionCostAnnotationKey) }),
		},
		"a delete that a client requested, too, goes on": {
			pod: orphan(func(pod *corev1.Pod) {
				request := deferreddelete.Request{Method: deferreddelete.MethodLabel, Actor: deferreddelete.ActorLabel}
				pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(request.Begin(pod, deferreddelete.Begun(pod)))
			}),
			want: []string{`"previous-deletion-cost":null`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, tc.pod)
			r := NewReleased(w.reconciler.client, w.recorder)
			key := types.NamespacedName{Namespace: "default", Name: "web-0"}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if sent := len(w.requests); sent != min(1, len(tc.want)) {
				t.Fatalf("sent %v", w.requests)
			}
			for _, part := range tc.want {
				if !strings.Contains(w.requests[0], part) {
					t.Errorf("sent %s, want %s", w.requests[0], part)
				}
			}
			if undone := len(w.recorder.Events) == 1; undone != (len(tc.want) == 2) {
				t.Errorf("%d events", len(w.recorder.Events))
			}
		})
	}
}
