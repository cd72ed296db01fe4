package resourceconsist

import (
	"context"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// employerEvents passes an event if the adapter's predicates do, and if the employer is or
// was this controller's: its items must be cleaned up.
func (r *Reconciler) employerEvents() predicate.Funcs {
	filter := r.binding.employerFilter
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return filter.Create(e) || r.marked(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return filter.Delete(e) || r.marked(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return filter.Generic(e) || r.marked(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return filter.Update(e) || r.binding.manages(e.ObjectOld) != r.binding.manages(e.ObjectNew) || r.marked(e.ObjectNew)
		},
	}
}

func (r *Reconciler) marked(employer client.Object) bool {
	return employer.GetAnnotations()[ControllerAnnotationKey] == r.binding.name
}

// selections holds which employees each employer selects, so that an event of an employee
// finds its employers without a call of the adapter. It is safe for concurrent use.
type selections struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]bool
}

func (s *selections) set(employer types.NamespacedName, names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.NamespacedName]map[string]bool{}
	}
	if len(names) == 0 {
		delete(s.all, employer)
		return
	}
	s.all[employer] = maps.Clone(names)
}

// employersFor returns the employers that select an employee.
func (s *selections) employersFor(employee types.NamespacedName) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var employers []types.NamespacedName
	for employer, names := range s.all {
		if employer.Namespace == employee.Namespace && names[employee.Name] {
			employers = append(employers, employer)
		}
	}
	return employers
}

// employeeEvents turns the event of an employee into requests for every employer that
// selects it, selected it before, or is named on it.
func (r *Reconciler) employeeEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, q queue, moved bool, objects ...client.Object) {
		requests := map[reconcile.Request]bool{}
		for _, object := range objects {
			for _, employer := range r.employersNear(ctx, object, moved) {
				requests[reconcile.Request{NamespacedName: employer}] = true
			}
		}
		for request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, q, true, e.Object) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, q, true, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { enqueue(ctx, q, true, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			moved := !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
			enqueue(ctx, q, moved, e.ObjectOld, e.ObjectNew)
		},
	}
}

// employersNear returns the employers that an event of an employee may affect. moved is
// true when it was created or deleted, or its labels changed, so that other employers may
// select it now.
func (r *Reconciler) employersNear(ctx context.Context, employee client.Object, moved bool) []types.NamespacedName {
	employers := r.selections.employersFor(client.ObjectKeyFromObject(employee))
	if pod, ok := employee.(*corev1.Pod); ok && r.binding.follow {
		employers = append(employers, r.named(ctx, pod)...)
	}
	if !moved && !r.binding.employerIsService() {
		return employers
	}
	all, err := r.employersIn(ctx, employee.GetNamespace())
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the employers of an employee", "employee", client.ObjectKeyFromObject(employee))
	}
	for _, employer := range all {
		service, isService := employer.(*corev1.Service)
		if isService && !selects(service, employee) {
			continue
		}
		if r.binding.manages(employer) || r.marked(employer) {
			employers = append(employers, client.ObjectKeyFromObject(employer))
		}
	}
	return employers
}

// selects reports whether a Service selects an object. A Service without a selector selects
// no pods.
func selects(service *corev1.Service, object client.Object) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(object.GetLabels()))
}

// named returns the employers of this kind that a pod names in its annotation, unless they
// are known to belong to another controller.
func (r *Reconciler) named(ctx context.Context, pod *corev1.Pod) []types.NamespacedName {
	var employers []types.NamespacedName
	prefix := lifecycleKey(r.kind, pod.Namespace, "")
	for _, mark := range readMarks(pod) {
		name, ours := strings.CutPrefix(mark, prefix)
		if !ours {
			continue
		}
		key, employer := types.NamespacedName{Namespace: pod.Namespace, Name: name}, r.binding.newEmployer()
		err := r.client.Get(ctx, key, employer)
		if apierrors.IsNotFound(err) || err == nil && (r.binding.manages(employer) || r.marked(employer)) {
			employers = append(employers, key)
		}
	}
	return employers
}

// employersIn lists the employers of a namespace from the cache.
func (r *Reconciler) employersIn(ctx context.Context, namespace string) ([]client.Object, error) {
	list, err := newList(r.scheme, r.listKind)
	if err != nil {
		return nil, err
	}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var all []client.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if employer, ok := item.(client.Object); ok {
			all = append(all, employer)
		}
		return nil
	})
	return all, err
}
