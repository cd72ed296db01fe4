// Package service holds the common parts of adapters whose employer is a Service and whose
// employees are pods.
package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Of returns the employer as a Service, or an error for any other object.
func Of(employer client.Object) (*corev1.Service, error) {
	service, isService := employer.(*corev1.Service)
	switch {
	case employer == nil, isService && service == nil:
		return nil, errors.New("employer is nil, want a Service")
	case !isService:
		return nil, fmt.Errorf("employer %s/%s is a %T, want a Service", employer.GetNamespace(), employer.GetName(), employer)
	default:
		return service, nil
	}
}

// Selected returns the pods that a Service selects, by name. A Service without a selector
// selects no pods, as in Kubernetes. The pods may come from a cache and must not be
// modified.
func Selected(ctx context.Context, reader client.Reader, employer client.Object) ([]*corev1.Pod, error) {
	service, err := Of(employer)
	if err != nil {
		return nil, err
	}
	if len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	var list corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(service.Spec.Selector)}
	if err := reader.List(ctx, &list, client.InNamespace(service.Namespace), selector); err != nil {
		return nil, fmt.Errorf("listing the pods of service %s/%s: %w", service.Namespace, service.Name, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// Names returns the names of the pods that Selected returns.
func Names(ctx context.Context, reader client.Reader, employer client.Object) ([]string, error) {
	pods, err := Selected(ctx, reader, employer)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names, nil
}

// Each calls do for every item, one after the other, and returns the items that succeeded and the
// items that failed, as a verb of an adapter does. A failed item does not stop the others; when ctx
// ends the remaining items fail with its error. The error joins the errors of all items.
func Each[T any](ctx context.Context, items []T, do func(context.Context, T) error) (succeeded, failed []T, err error) {
	var errs []error
	for i, item := range items {
		if ctx.Err() != nil {
			return succeeded, append(failed, items[i:]...), errors.Join(append(errs, ctx.Err())...)
		}
		if err := do(ctx, item); err != nil {
			failed, errs = append(failed, item), append(errs, err)
			continue
		}
		succeeded = append(succeeded, item)
	}
	return succeeded, failed, errors.Join(errs...)
}
