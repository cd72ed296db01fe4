package operator

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// lifecycle is the LifecycleAdapter of an operation: each operation has an id of its own.
type lifecycle struct{ operation plan.Operation }

// GetID returns the id of the lifecycle.
func (l lifecycle) GetID() string { return "kvstore-" + string(l.operation) }

// GetType returns the type of the operation, which rules may refer to.
func (l lifecycle) GetType() podopslifecycle.OperationType {
	return podopslifecycle.OperationType(l.operation)
}

// AllowMultiType lets other controllers have operations of the same type on the pod.
func (l lifecycle) AllowMultiType() bool { return true }

// WhenBegin announces that a pod that is scaled in does not return.
func (l lifecycle) WhenBegin(pod client.Object) (bool, error) {
	if l.operation != plan.ScaleIn {
		return false, nil
	}
	return podopslifecycle.PrepareDelete(pod)
}

// WhenFinish changes nothing: the operations end with the pod.
func (l lifecycle) WhenFinish(client.Object) (bool, error) { return false, nil }

// permission returns how far the operation is on a pod.
func (l lifecycle) permission(pod client.Object) plan.Permission {
	_, allowed := podopslifecycle.AllowOps(l, 0, pod)
	begun := podopslifecycle.IsDuringOps(l, pod)
	return plan.Permission{Begun: begun, Allowed: begun && allowed}
}
