package trafficadapter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Registration matches the Services of one adapter. The zero value matches no Service. It is
// immutable.
type Registration struct {
	controller string
	entries    []entry
}

// entry is a ServiceMatch with a parsed selector.
type entry struct {
	selector    labels.Selector
	annotations []appsv1alpha1.AnnotationMatch
	kind        corev1.ServiceType
	classes     []string
}

// Parse returns the Registration of a TrafficAdapter. It leaves out entries with an invalid
// selector and names them in the error.
func Parse(adapter *appsv1alpha1.TrafficAdapter) (Registration, error) {
	registration := Registration{controller: adapter.Spec.Controller}
	var errs []error
	for i, match := range adapter.Spec.Services {
		selector := labels.Everything()
		if match.LabelSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(match.LabelSelector); err != nil {
				errs = append(errs, fmt.Errorf("spec.services[%d].labelSelector: %w", i, err))
				continue
			}
		}
		registration.entries = append(registration.entries, entry{
			selector: selector, annotations: match.Annotations, kind: match.Type, classes: match.LoadBalancerClasses,
		})
	}
	return registration, errors.Join(errs...)
}

// Matches reports whether a Service belongs to the adapter: it is under PodOps, no other controller
// has it, and one of the entries matches.
func (r Registration) Matches(service *corev1.Service) bool {
	if !appsv1alpha1.IsControlled(service.Labels) {
		return false
	}
	if owner := service.Annotations[resourceconsist.ControllerAnnotationKey]; owner != "" && owner != r.controller {
		return false
	}
	return slices.ContainsFunc(r.entries, func(e entry) bool { return e.matches(service) })
}

// Owns reports whether a Service with this value of resourceconsist.ControllerAnnotationKey belongs
// to the adapter, even if the registration does not match the Service now.
func (r Registration) Owns(controller string) bool {
	return controller != "" && controller == r.controller
}

func (e entry) matches(service *corev1.Service) bool {
	if !e.selector.Matches(labels.Set(service.Labels)) {
		return false
	}
	if e.kind != "" && e.kind != cmp.Or(service.Spec.Type, corev1.ServiceTypeClusterIP) {
		return false
	}
	class := ""
	if service.Spec.LoadBalancerClass != nil {
		class = *service.Spec.LoadBalancerClass
	}
	if len(e.classes) > 0 && !slices.Contains(e.classes, class) {
		return false
	}
	return !slices.ContainsFunc(e.annotations, func(match appsv1alpha1.AnnotationMatch) bool {
		value, has := service.Annotations[match.Key]
		if match.Value == nil {
			return value == ""
		}
		return !has || *match.Value != value
	})
}

// InUse returns the TrafficAdapters that are in use: the first MaxTrafficAdapters by name. It
// sorts its argument.
func InUse(adapters []appsv1alpha1.TrafficAdapter) []appsv1alpha1.TrafficAdapter {
	slices.SortFunc(adapters, func(a, b appsv1alpha1.TrafficAdapter) int { return cmp.Compare(a.Name, b.Name) })
	return adapters[:min(len(adapters), appsv1alpha1.MaxTrafficAdapters)]
}
