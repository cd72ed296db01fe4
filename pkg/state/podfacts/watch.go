package podfacts

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// EmployerField is the field of the cache index over pods by the employers that they name.
const EmployerField = "podops.employer"

// IndexByEmployer returns the employers that a pod names, for the index EmployerField.
func IndexByEmployer(object client.Object) []string {
	conditions, err := lifecycle.ParseAvailableConditions(object.GetAnnotations())
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(conditions.ExpectedFinalizers))
}

// Waiting returns requests for the pods that name a Service and do not carry its
// finalizer: changes of the Service may affect them. The reader has the index
// EmployerField.
func Waiting(ctx context.Context, pods client.Reader, service client.Object) ([]reconcile.Request, error) {
	employer := podstate.EmployerName(service.GetNamespace(), service.GetName())
	var list corev1.PodList
	err := pods.List(ctx, &list, client.InNamespace(service.GetNamespace()), client.MatchingFields{EmployerField: employer}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the pods that name %s: %w", employer, err)
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if slices.Contains(lifecycle.NewPodFacts(&list.Items[i]).Missing(), employer) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests, nil
}

// EmploymentEnds passes the events of Services after which a Service may employ fewer pods:
// it is deleted, begins to terminate, or selects other pods.
func EmploymentEnds() predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isService := e.ObjectOld.(*corev1.Service)
			after, still := e.ObjectNew.(*corev1.Service)
			return isService && still && (before.UID != after.UID || !maps.Equal(before.Spec.Selector, after.Spec.Selector) ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
		},
	}
}
