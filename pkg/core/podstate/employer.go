package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

const serviceKind = "Service"

// ParseEmployer returns the name of the Service in the key of an employer, <Kind>/<namespace>/<name>. It
// returns false for other kinds and for malformed keys.
func ParseEmployer(employer string) (types.NamespacedName, bool) {
	kind, rest, _ := strings.Cut(employer, "/")
	namespace, name, found := strings.Cut(rest, "/")
	ok := kind == serviceKind && found && namespace != "" && name != "" && !strings.Contains(name, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}

// EmployerName returns the key under which pods name a Service.
func EmployerName(namespace, name string) string { return serviceKind + "/" + namespace + "/" + name }

// Selects reports whether a Service selects a pod. A Service without a selector selects no pod.
func Selects(service *corev1.Service, pod *corev1.Pod) bool {
	selector := service.Spec.Selector
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels))
}
