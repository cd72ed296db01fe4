package trafficadapter

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// ServiceField is the field of the cache index over Services under PodOps.
	ServiceField = "podops.trafficadapter"

	// AllServices is the value of ServiceField that every Service under PodOps has.
	AllServices = "*"
)

// IndexServices returns, for a Service under PodOps, AllServices and one label that every pod of
// it has, for the index ServiceField. A pod has few labels, so its Services are found without
// reading the other Services of its namespace.
func IndexServices(object client.Object) []string {
	service, ok := object.(*corev1.Service)
	if !ok || !appsv1alpha1.IsControlled(service.Labels) {
		return nil
	}
	values := []string{AllServices}
	keys := slices.Sorted(maps.Keys(service.Spec.Selector))
	// Every pod under PodOps has the control label, so it does not distinguish pods.
	specific := slices.IndexFunc(keys, func(key string) bool { return key != appsv1alpha1.ControlLabelKey })
	if len(keys) > 0 {
		key := keys[max(specific, 0)]
		values = append(values, labelValue(key, service.Spec.Selector[key]))
	}
	return values
}

func labelValue(key, value string) string { return key + "=" + value }

// maxServiceBytes bounds the labels that Slim keeps, and the annotations.
const maxServiceBytes = 16 << 10

// Slim returns the fields of a Service under PodOps that a Registration reads, within bounds: labels,
// annotations, the type and the class. Longer values of annotations than any match are cut. Beyond
// the bounds the last keys are left out, so that the Service may match no adapter.
func Slim(service *corev1.Service) *corev1.Service {
	if !appsv1alpha1.IsControlled(service.Labels) {
		return &corev1.Service{}
	}
	slim := &corev1.Service{}
	slim.Labels = bounded(service.Labels, appsv1alpha1.ControlLabelKey)
	slim.Annotations = bounded(service.Annotations, "")
	slim.Spec.Type, slim.Spec.LoadBalancerClass = service.Spec.Type, service.Spec.LoadBalancerClass
	return slim
}

// bounded returns the first entries by key with at most maxServiceBytes together, and the entry of
// a required key.
func bounded(all map[string]string, required string) map[string]string {
	kept, bytes := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		if len(value) > appsv1alpha1.MaxAnnotationMatchBytes {
			// One byte more than a match may have: the cut value equals no match.
			value = strings.Clone(value[:appsv1alpha1.MaxAnnotationMatchBytes+1])
		}
		if bytes += len(key) + len(value); bytes <= maxServiceBytes || key == required {
			kept[key] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
