package podtransitionrule

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/state/podindex"
)

func (r *Reconciler) setOwner(object client.Object) {
	if owner, counts := podindex.NewOwner(object); counts {
		r.index.SetOwner(owner)
	}
}

func (r *Reconciler) deleteOwner(object client.Object) {
	r.index.DeleteOwner(object.GetNamespace(), object.GetUID())
}
