package replicasetscale

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

// EventDeleteUndone reports on a pod that its deletion was cancelled. It never changes.
const EventDeleteUndone = "DeleteUndone"

// Released puts pods back into service whose deletion was begun for a ReplicaSet that no longer controls
// them: it was deleted with orphans, or its selector does not match them any more. A ReplicaSet that adopts a
// pod decides about it as about its own.
type Released struct {
	client   client.Client
	recorder events.EventRecorder
}

// NewReleased returns a Released. c writes to the API server and reads from the cache.
func NewReleased(c client.Client, recorder events.EventRecorder) *Released {
	return &Released{client: c, recorder: recorder}
}

// SetupWithManager registers the controller on the leader.
func (r *Released) SetupWithManager(mgr ctrl.Manager, workers int) error {
	released := predicate.NewPredicateFuncs(func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && isReleased(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("replicaset-released").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(released)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// isReleased reports whether the deletion of a pod was begun for a ReplicaSet, and the pod has no controller.
func isReleased(pod *corev1.Pod) bool {
	return replicasetscale.IsActive(pod) && replicasetscale.IsBegun(pod) && metav1.GetControllerOfNoCopy(pod) == nil
}

// Reconcile ends the deletion of a pod, unless a client has requested it, too, and restores its deletion cost.
func (r *Released) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isReleased(pod) {
		return reconcile.Result{}, nil
	}
	var labels map[string]any
	if _, requested := deferreddelete.Pending(pod); !requested && replicasetscale.IsDeleting(pod) {
		labels = map[string]any{
			appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
		}
	}
	stored, err := podwriter.PatchMetadata(ctx, r.client, pod, labels, replicasetscale.Unpin(pod))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("undoing the deletion of a released pod: %w", err)
	}
	if stored != nil && labels != nil {
		r.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteUndone, "Undo", "no ReplicaSet controls the pod any more")
	}
	return reconcile.Result{}, nil
}
