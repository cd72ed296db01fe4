package operator

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// The API server bounds neither the labels of an object nor its selectors: a user of one namespace can store objects
// of a megabyte and more. The cache keeps these bytes of each.
const (
	// maxPodBytes is the size of a slim pod, as protocol buffer, from which on boundPod cuts it.
	maxPodBytes = 128 << 10

	// maxOwnBytes bounds the labels of PodOps and related controllers on a large pod, and their annotations.
	maxOwnBytes = 40 << 10

	// maxMapBytes bounds any other map of an object, and each list of finalizers.
	maxMapBytes = 16 << 10

	// maxReferenceBytes bounds texts of an object that refer to another, such as that to its controller.
	maxReferenceBytes = 1 << 10

	// maxConditions is the number of conditions that a large pod keeps besides the conditions of PodOps.
	maxConditions = 32
)

// ownDomain is the key domain of PodOps and related controllers, which use it and its subdomains.
const ownDomain = "kusionstack.io"

func isOwn(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain))
}

// bounded returns the first entries by key that have at most so many bytes together, and the entries of required
// keys. It returns a map within the bound itself.
func bounded(all map[string]string, most int, required ...string) map[string]string {
	size := 0
	for key, value := range all {
		size += len(key) + len(value)
	}
	if size <= most {
		return all
	}
	kept, size := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if size += len(key) + len(all[key]); size <= most || slices.Contains(required, key) {
			kept[key] = all[key]
		}
	}
	return kept
}

// boundedByDomain is bounded for the keys of PodOps and for all others.
func boundedByDomain(all map[string]string) map[string]string {
	own, others := map[string]string{}, map[string]string{}
	for key, value := range all {
		if isOwn(key) {
			own[key] = value
		} else {
			others[key] = value
		}
	}
	kept := maps.Clone(bounded(others, maxMapBytes))
	maps.Copy(kept, bounded(own, maxOwnBytes,
		appsv1alpha1.ControlLabelKey, appsv1alpha1.PendingDeleteAnnotationKey, appsv1alpha1.RequestersAnnotationKey, appsv1alpha1.AvailableConditionsAnnotationKey))
	return kept
}

// boundedNames returns the first names with at most maxMapBytes together.
func boundedNames(names []string) []string {
	size := 0
	for i, name := range names {
		if size += len(name); size > maxMapBytes {
			return names[:i]
		}
	}
	return names
}

// controllerOnly returns the reference to the controller of an object.
func controllerOnly(object metav1.Object) []metav1.OwnerReference {
	controller := metav1.GetControllerOf(object)
	if controller != nil && len(controller.APIVersion)+len(controller.Kind)+len(controller.Name)+len(controller.UID) <= maxReferenceBytes {
		return []metav1.OwnerReference{*controller}
	}
	return nil
}

// boundPod cuts a pod that is large without the fields that slimPod drops, so that its lifecycle goes on as that of
// other pods. Of what rules and Services may select it by, the labels beyond maxMapBytes are missing: that concerns this
// pod only, which its editors may take from PodOps at any time.
func boundPod(pod *corev1.Pod) {
	pod.Labels, pod.Annotations = boundedByDomain(pod.Labels), boundedByDomain(pod.Annotations)
	pod.OwnerReferences = controllerOnly(pod)
	protects := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(name string) bool { return !lifecycle.IsProtectionFinalizer(name) })
	others := slices.DeleteFunc(pod.Finalizers, lifecycle.IsProtectionFinalizer)
	pod.Finalizers = slices.Concat(boundedNames(protects), boundedNames(others))
	gate := corev1.PodReadinessGate{ConditionType: appsv1alpha1.ServiceReadyGate}
	gated := slices.Contains(pod.Spec.ReadinessGates, gate)
	if pod.Spec.ReadinessGates = nil; gated {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{gate}
	}
	pod.Spec.NodeSelector, pod.Spec.SecurityContext = nil, nil
	if len(pod.Spec.SchedulerName) > maxReferenceBytes {
		pod.Spec.SchedulerName = ""
	}
	if size := (&corev1.Pod{Spec: corev1.PodSpec{Containers: pod.Spec.Containers}}).Size(); size > maxMapBytes {
		pod.Spec.Containers = nil
	}
	if size := (&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: pod.Status.ContainerStatuses}}).Size(); size > maxMapBytes {
		pod.Status.ContainerStatuses = nil
	}
	conditions := 0
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		if isOwn(string(condition.Type)) {
			return false
		}
		conditions++
		return conditions > maxConditions
	})
}

// boundWorkload drops the metadata of a workload that no component reads, and its selector, and bounds the labels of
// its template.
func boundWorkload(object metav1.Object) {
	object.SetLabels(nil)
	object.SetFinalizers(orphanOnly(object.GetFinalizers()))
	object.SetOwnerReferences(controllerOnly(object))
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		o.Spec.Selector, o.Spec.Template.ObjectMeta = nil, templateMeta(o.Spec.Template)
	case *appsv1.Deployment:
		o.Spec.Selector, o.Spec.Template.ObjectMeta = nil, templateMeta(o.Spec.Template)
	case *appsv1.StatefulSet:
		o.Spec.Selector, o.Spec.Template.ObjectMeta = nil, templateMeta(o.Spec.Template)
	case *appsv1.DaemonSet:
		o.Spec.Selector, o.Spec.Template.ObjectMeta = nil, templateMeta(o.Spec.Template)
	case *batchv1.Job:
		o.Spec.Selector, o.Spec.Template.ObjectMeta = nil, templateMeta(o.Spec.Template)
	}
}

// orphanOnly returns the finalizer of a deletion that leaves the pods, if there is one.
func orphanOnly(finalizers []string) []string {
	if slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		return []string{metav1.FinalizerOrphanDependents}
	}
	return nil
}

// templateMeta returns the metadata of a template that components read.
func templateMeta(template corev1.PodTemplateSpec) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Labels: bounded(template.Labels, maxMapBytes, appsv1alpha1.ControlLabelKey)}
	if skipped, ok := template.Annotations[appsv1alpha1.SkipRulesAnnotationKey]; ok && len(skipped) <= maxMapBytes {
		meta.Annotations = map[string]string{appsv1alpha1.SkipRulesAnnotationKey: skipped}
	}
	return meta
}

// boundService bounds a Service that adapters inside of the manager read as a whole.
func boundService(object any) (any, error) {
	if service, ok := object.(*corev1.Service); ok {
		service.ManagedFields = nil
		service.Labels = bounded(service.Labels, maxMapBytes, appsv1alpha1.ControlLabelKey)
		service.Annotations = bounded(service.Annotations, maxOwnBytes)
		service.Finalizers = boundedNames(service.Finalizers)
		service.OwnerReferences = controllerOnly(service)
		service.Spec.Selector = bounded(service.Spec.Selector, maxMapBytes)
	}
	return object, nil
}

// slimOperation drops the metadata of a PodOperation that no component reads, and of an ended PodOperation its target: any
// lifecycle that is left on a pod has the UID of the PodOperation.
func slimOperation(object any) (any, error) {
	operation, ok := object.(*appsv1alpha1.PodOperation)
	if !ok {
		return object, nil
	}
	operation.ManagedFields, operation.Labels, operation.Annotations, operation.OwnerReferences = nil, nil, nil, nil
	operation.Finalizers = operationFinalizers(operation.Finalizers)
	if operation.Status.CompletionTime != nil {
		operation.Spec.Target, operation.Status.Pods = appsv1alpha1.PodOperationTarget{}, nil
	}
	return object, nil
}

// operationFinalizers bounds finalizers, and keeps that of PodOps.
func operationFinalizers(all []string) []string {
	kept := boundedNames(all)
	if own := appsv1alpha1.PodOperationFinalizer; slices.Contains(all, own) && !slices.Contains(kept, own) {
		kept = append(slices.Clone(kept), own)
	}
	return kept
}
