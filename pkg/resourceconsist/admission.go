package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Admission returns the finalizers that a new pod must have before it is available. Without
// it the pod could count as available until its employers are reconciled. The zero value
// knows no adapter. It is safe for concurrent use.
type Admission struct {
	mu       sync.Mutex
	adapters []*Reconciler
}

func (a *Admission) add(r *Reconciler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adapters = append(a.adapters, r)
}

// ExpectedFinalizers maps each employer that will select a pod to its finalizer, as the
// annotation of expected finalizers does. The pod has a namespace, and possibly no name
// yet. ExpectedFinalizers reads from caches only. It leaves out an adapter that fails and
// names it in the error: the rest of the map is valid, and the next reconcile records the
// missing part.
func (a *Admission) ExpectedFinalizers(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	a.mu.Lock()
	adapters := a.adapters
	a.mu.Unlock()
	expected := map[string]string{}
	var errs []error
	for _, r := range adapters {
		employers, err := r.employersFor(ctx, pod)
		if err != nil {
			errs = append(errs, fmt.Errorf("adapter %s: finding the employers of a pod: %w", r.binding.name, err))
		}
		for _, employer := range employers {
			finalizer := GenerateLifecycleFinalizer(employer.GetName())
			key := lifecycleKey(r.kind, employer.GetNamespace(), employer.GetName())
			if !taken(expected, key, finalizer) {
				expected[key] = finalizer
			}
		}
	}
	return expected, errors.Join(errs...)
}

// employersFor returns the employers of a new pod: the employers that the adapter returns, or every
// Service of the adapter that selects the pod. It leaves out terminating employers.
func (r *Reconciler) employersFor(ctx context.Context, pod *corev1.Pod) (employers []client.Object, err error) {
	defer recovered(&err)
	var candidates []client.Object
	switch {
	case r.binding.employersFor != nil:
		candidates, err = r.binding.employersFor(ctx, pod, r.client)
	case r.binding.employerIsService():
		candidates, err = r.employersIn(ctx, pod.Namespace)
	}
	if err != nil {
		return nil, err
	}
	for _, employer := range candidates {
		service, isService := employer.(*corev1.Service)
		if r.binding.employersFor == nil && isService && !selects(service, pod) {
			continue
		}
		if employer.GetNamespace() == pod.Namespace && employer.GetDeletionTimestamp() == nil && r.binding.manages(employer) {
			employers = append(employers, employer)
		}
	}
	return employers, nil
}
