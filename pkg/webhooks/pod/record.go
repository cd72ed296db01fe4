package pod

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
)

// recordChange keeps the record of a pending delete for as long as its lifecycle: it restores a
// record that a client drops that writes whole objects from its cache, since a pod without it
// would wait for ever, and removes it with the lifecycle, unless it is of a lifecycle that is to begin. after are the labels after the request.
func recordChange(old, requested *corev1.Pod, after map[string]string, trusted bool) map[string]any {
	key := appsv1alpha1.PendingDeleteAnnotationKey
	value, had := old.Annotations[key]
	_, has := requested.Annotations[key]
	_, _, handedOver := deferreddelete.HandedOver(requested)
	switch {
	case has && !deferreddelete.IsDeferred(after) && !handedOver:
		return map[string]any{key: nil}
	case !had || has || trusted || !deferreddelete.IsDeferred(after):
		return nil
	default:
		return map[string]any{key: value}
	}
}

// forgesRecord reports whether a request adds or changes the record of a pending delete, for
// which the manager would delete the pod with its own rights.
func forgesRecord(old, requested *corev1.Pod) bool {
	value, has := requested.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]
	return has && value != old.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]
}

func forged(key string) admission.Response {
	return admission.Denied("metadata.annotations: only PodOps sets " + key)
}
