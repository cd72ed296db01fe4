package podoperation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Indexes of the cache over PodOperations. A namespace may have any number of them, of which a few are in progress: no
// event of a pod, and no round, reads them all.
const (
	// StartedField has the value isInProgress for the operations that are in progress.
	StartedField = "podops.podoperation.started"

	// UIDField is the UID of an operation.
	UIDField = "podops.podoperation.uid"

	isInProgress = "true"
)

// IndexStarted indexes the operations that are in progress.
func IndexStarted(object client.Object) []string {
	if operation, ok := object.(*appsv1alpha1.PodOperation); ok && isStarted(operation) {
		return []string{isInProgress}
	}
	return nil
}

// IndexUID indexes operations by UID.
func IndexUID(object client.Object) []string { return []string{string(object.GetUID())} }

// isStarted reports whether an operation is in progress.
func isStarted(operation *appsv1alpha1.PodOperation) bool {
	return operation.Status.StartTime != nil && operation.Status.CompletionTime == nil
}

// started returns the operations of a namespace that are in progress. They are shared with the cache.
func (r *Reconciler) started(ctx context.Context, namespace string) ([]appsv1alpha1.PodOperation, error) {
	return r.indexed(ctx, namespace, client.MatchingFields{StartedField: isInProgress})
}

// byUID returns the operation of a namespace with a UID, if it exists. It is shared with the cache.
func (r *Reconciler) byUID(ctx context.Context, namespace string, uid types.UID) ([]appsv1alpha1.PodOperation, error) {
	return r.indexed(ctx, namespace, client.MatchingFields{UIDField: string(uid)})
}

func (r *Reconciler) indexed(ctx context.Context, namespace string, fields client.MatchingFields) ([]appsv1alpha1.PodOperation, error) {
	list := &appsv1alpha1.PodOperationList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), fields, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	return list.Items, nil
}
