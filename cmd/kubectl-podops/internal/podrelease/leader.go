package podrelease

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// renewPatience is how long an unchanged Lease counts as held: a leader renews it every 2 s.
const renewPatience = 6 * time.Second

// ErrManagerOutside reports a manager that runs outside of the cluster: it would undo what Run does.
var ErrManagerOutside = errors.New("a manager outside of the cluster leads")

// findManagerOutside fails with ErrManagerOutside if the Deployment of the manager has no replicas, and its Lease is
// renewed all the same. It runs before anything is changed.
func (r *runner) findManagerOutside(ctx context.Context) error {
	var deployment appsv1.Deployment
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: appsv1alpha1.ManagerName}, &deployment)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading deployment %s: %w", appsv1alpha1.ManagerName, err)
	}
	if err == nil && (ptr.Deref(deployment.Spec.Replicas, 1) > 0 || deployment.Status.Replicas > 0) {
		return nil
	}
	return r.expectNoLeader(ctx)
}

// expectNoLeader returns once the Lease is released, has expired, or is unchanged for renewPatience: a manager that was
// killed does not release it.
func (r *runner) expectNoLeader(ctx context.Context) error {
	first, err := r.lease(ctx)
	if err != nil || !trafficadapter.IsHeld(first, r.clock.Now()) {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, renewPatience)
	defer stop()
	err = wait.PollUntilContextCancel(waiting, time.Second, true, func(context.Context) (bool, error) {
		lease, err := r.lease(ctx)
		if err != nil {
			return false, err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder != "" && !lease.Spec.RenewTime.Equal(first.Spec.RenewTime) {
			return false, fmt.Errorf("%w: %s renews Lease %s/%s; end it, and repeat the command",
				ErrManagerOutside, holder, r.options.Namespace, appsv1alpha1.ManagerName)
		}
		return holder == "", nil
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// lease reads the Lease of the manager; a Lease without a holder if it does not exist.
func (r *runner) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: appsv1alpha1.ManagerName}, lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Lease %s/%s: %w", r.options.Namespace, appsv1alpha1.ManagerName, err)
	}
	return lease, nil
}
