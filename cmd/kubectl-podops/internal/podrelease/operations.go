package podrelease

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// releaseOperations removes the finalizer of PodOperations: their lifecycles have ended with all others, and
// no manager would let them or their CRD be deleted.
func (r *runner) releaseOperations(ctx context.Context) error {
	err := r.eachPage(ctx, &appsv1alpha1.PodOperationList{}, func(page client.ObjectList) error {
		operations := page.(*appsv1alpha1.PodOperationList)
		for i := range operations.Items {
			operation := &operations.Items[i]
			_, err := r.change(ctx, operation, func() {
				operation.Finalizers = without(operation.Finalizers, []string{appsv1alpha1.PodOperationFinalizer})
			})
			if err != nil {
				return fmt.Errorf("PodOperation %s: %w", client.ObjectKeyFromObject(operation), err)
			}
		}
		return nil
	})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // an older installation does not have the kind
	}
	return err
}
