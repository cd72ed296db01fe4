package world

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/world/node"
)

const (
	// app is the label that names the workload of a pod.
	app = "app"

	// approved is the label that the rule "approved" requires.
	approved = "approved"

	// pool begins the label of nodes that a DaemonSet selects, which ends with its name.
	pool = "pool-"

	// first is the image of a workload when a schedule begins.
	first = "v1"

	// workersPerLeader is the number of workers of each leader of a Group.
	workersPerLeader = 2
)

// group is the API group of the custom resources of the schedules.
func group() schema.GroupVersion { return schema.GroupVersion{Group: "test.podops.dev", Version: "v1"} }

// manifest returns the object of a workload.
func manifest(w Workload) client.Object {
	meta := metav1.ObjectMeta{Namespace: w.Namespace(), Name: w.Name, Labels: map[string]string{"workload": w.Name}}
	selector, template, replicas := &metav1.LabelSelector{MatchLabels: map[string]string{app: w.Name}}, template(w), int32(w.Replicas)
	switch w.Kind {
	case Deployment:
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: selector, Template: template, Strategy: strategy(w), ProgressDeadlineSeconds: deadline(w),
		}}
	case ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector, Template: template}}
	case StatefulSet, Group:
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: template, ServiceName: w.Name}}
	case DaemonSet:
		template.Spec.NodeSelector = map[string]string{pool + w.Name: "true"}
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	case Job:
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		limit := int32(100)
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &replicas, Completions: &replicas, BackoffLimit: &limit, Template: template}}
	default:
		return custom(w)
	}
}

// custom returns the custom resource of a workload of a Fleet or a Rollout.
func custom(w Workload) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"replicas": int64(w.Replicas), "image": first},
	}}
	object.SetGroupVersionKind(group().WithKind(string(w.Kind)))
	object.SetNamespace(w.Namespace())
	object.SetName(w.Name)
	return object
}

func strategy(w Workload) appsv1.DeploymentStrategy {
	if w.Recreate {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	rolling := &appsv1.RollingUpdateDeployment{}
	if w.MaxUnavailable != "" {
		value := intstr.Parse(w.MaxUnavailable)
		rolling.MaxUnavailable = &value
	}
	if w.MaxSurge != "" {
		value := intstr.Parse(w.MaxSurge)
		rolling.MaxSurge = &value
	}
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: rolling}
}

func deadline(w Workload) *int32 {
	if w.ProgressDeadline == 0 {
		return nil
	}
	seconds := int32(w.ProgressDeadline)
	return &seconds
}

// template returns the template of the pods of a workload.
func template(w Workload) corev1.PodTemplateSpec {
	labels := map[string]string{app: w.Name}
	if w.isLabelled() {
		labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
	}
	annotations := map[string]string{}
	if w.Start != 0 {
		annotations[node.StartAfter] = w.Start.String()
	}
	if w.Stop != 0 {
		annotations[node.StopAfter] = w.Stop.String()
	}
	if w.Kind == Job {
		annotations[node.CompleteAfter] = "20m"
	}
	if w.Balanced {
		annotations[drainTime] = w.Drain.String()
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: first}}},
	}
}

// rule returns the PodTransitionRule of a kind for the pods of a workload: "approved" requires the label approved=true,
// "max=N" lets N pods be unavailable, and "max=N,surge=M" lets the Deployment start M other pods first.
func rule(w Workload, kind string) (*appsv1alpha1.PodTransitionRule, error) {
	object := &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace(), Name: ruleName(w.Name, kind)},
		Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{app: w.Name}}},
	}
	check := appsv1alpha1.TransitionRule{Name: "check"}
	var percent string
	var number, surge int
	switch {
	case kind == approved:
		check.LabelCheck = &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{approved: "true"}}}
	case scan(kind, "max=%d,surge=%d", &number, &surge):
		bound, more := intstr.FromInt(number), intstr.FromInt(surge)
		check.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &bound, Surge: &more}
	case scan(kind, "max=%d", &number):
		bound := intstr.FromInt(number)
		check.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &bound}
	case scan(kind, "share=%s", &percent):
		bound := intstr.FromString(percent)
		check.AvailablePolicy = &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &bound}
	default:
		return nil, fmt.Errorf("unknown rule %q", kind)
	}
	object.Spec.Rules = []appsv1alpha1.TransitionRule{check}
	return object, nil
}

func scan(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text, format, into...)
	return err == nil && n == len(into)
}

// ruleName returns the name of the rule of a kind. Rules of availability share one, so that a second edits the first.
func ruleName(workload, kind string) string {
	if kind == approved {
		return workload + "-approved"
	}
	return workload + "-available"
}

// budget returns the PodDisruptionBudget of a workload.
func budget(w Workload, minAvailable int) *policyv1.PodDisruptionBudget {
	bound := intstr.FromInt(minAvailable)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace(), Name: w.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &bound, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{app: w.Name}},
		},
	}
}

// newWorkers returns the StatefulSet with a leader's workers.
func newWorkers(of *corev1.Pod, image string) *appsv1.StatefulSet {
	replicas, labels := int32(workersPerLeader), maps.Clone(of.Labels)
	for _, key := range []string{appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, appsv1.ControllerRevisionHashLabelKey} {
		delete(labels, key)
	}
	for key := range labels {
		if key != app && key != appsv1alpha1.ControlLabelKey {
			delete(labels, key)
		}
	}
	selector := map[string]string{leader: of.Name}
	labels[leader] = of.Name
	controller := true
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: of.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: of.Name, UID: of.UID, Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: selector}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
}
