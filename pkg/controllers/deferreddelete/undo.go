package deferreddelete

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// undoer ends lifecycles whose pods go back into service.
type undoer struct {
	client   client.Client
	recorder events.EventRecorder
	metrics  *Metrics
}

// patch is podwriter.PatchMetadata, or podwriter.PatchUnchanged where a rule may have permitted the pod meanwhile.
type patch func(ctx context.Context, c client.Client, pod *corev1.Pod, labels, annotations map[string]any) (*corev1.Pod, error)

// undo ends the lifecycle pod-delete of a pod, removes the request record and the deletion cost that PodOps has set, and
// reports why. It returns false if the pod does not exist any more, or has changed.
func (u undoer) undo(ctx context.Context, pod *corev1.Pod, lapse deferreddelete.Lapse, write patch) (bool, error) {
	labels := map[string]any{appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType}
	annotations := replicasetscale.Unpin(pod)
	if _, had := pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]; had {
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[appsv1alpha1.PendingDeleteAnnotationKey] = nil
	}
	stored, err := write(ctx, u.client, pod, labels, annotations)
	if err != nil {
		return false, fmt.Errorf("undoing the delete of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	if stored == nil {
		return false, nil
	}
	u.metrics.lapsed(lapse)
	u.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteUndone, "Undo", "%s", lapse.Describe())
	return true, nil
}
