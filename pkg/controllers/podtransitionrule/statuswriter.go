package podtransitionrule

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
)

// APIStatusWriter writes statuses to the API server.
type APIStatusWriter struct {
	Client client.Client
}

// WriteStatus updates the whole status under the resourceVersion of the object: that
// is the lock under which reservations are made.
func (w APIStatusWriter) WriteStatus(ctx context.Context, object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	stored := object.DeepCopy()
	if err := w.Client.Status().Update(ctx, stored); err != nil {
		return nil, err
	}
	// The answer is the whole stored object, of any size.
	if _, err := objectbounds.Load(stored); err != nil {
		return nil, fmt.Errorf("reducing the answer: %w", err)
	}
	return stored, nil
}
