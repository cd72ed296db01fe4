package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// TestTheCacheLoadsNoLargeObject shows that the transforms of the cache replace objects over their bounds.
func TestTheCacheLoadsNoLargeObject(t *testing.T) {
	large := map[string]metav1.Object{
		"*v1alpha1.PodTransitionRule": &appsv1alpha1.PodTransitionRule{Spec: appsv1alpha1.PodTransitionRuleSpec{
			Rules: make([]appsv1alpha1.TransitionRule, appsv1alpha1.MaxTransitionRules+1),
		}},
		"*v1alpha1.PodTransitionPolicy": &appsv1alpha1.PodTransitionPolicy{Spec: appsv1alpha1.PodTransitionPolicySpec{
			Module: strings.Repeat("x", appsv1alpha1.MaxPolicySpecBytes),
		}},
	}
	for kind, options := range cacheOptions(Options{Namespace: "podops-system"}).ByObject {
		object, ok := large[fmt.Sprintf("%T", kind)]
		if !ok {
			continue
		}
		delete(large, fmt.Sprintf("%T", kind))
		if options.Transform == nil {
			t.Errorf("%T has no transform", kind)
			continue
		}
		if _, err := options.Transform(object); err != nil || objectbounds.TooLarge(object) == nil {
			t.Errorf("%T is loaded: %v", kind, err)
		}
	}
	if len(large) > 0 {
		t.Errorf("not in the cache: %v", large)
	}
}

// hostileMeta is metadata as large as a request may be, under PodOps.
func hostileMeta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7", Labels: many("label", "value"),
		Annotations: map[string]string{"note": strings.Repeat("x", 80<<10), appsv1alpha1.DeploymentRevisionAnnotationKey: strings.Repeat("1", 80<<10), "podopslifecycle.kusionstack.io/note": strings.Repeat("x", 80<<10)},
	}
	meta.Labels[appsv1alpha1.ControlLabelKey] = appsv1alpha1.ControlLabelValue
	for i := range 10_000 {
		meta.Finalizers = append(meta.Finalizers, fmt.Sprintf("example.com/finalizer-%d", i))
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("owner-%d", i), UID: "o"})
		meta.Labels[fmt.Sprintf("%s/id-%d", appsv1alpha1.OperatingLabelPrefix, i)] = "1"
	}
	meta.OwnerReferences[9_999].Controller = new(true)
	return meta
}

// many returns a map of 50,000 texts.
func many(key, value string) map[string]string {
	all := map[string]string{}
	for i := range 50_000 {
		all[fmt.Sprintf("%s-%05d", key, i)] = value
	}
	return all
}

// TestTheCacheKeepsLittleOfAnyObject shows that the cache bounds the objects whose fields no schema bounds.
func TestTheCacheKeepsLittleOfAnyObject(t *testing.T) {
	values := make([]string, 150_000)
	for i := range values {
		values[i] = fmt.Sprintf("v%d", i)
	}
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	template := corev1.PodTemplateSpec{ObjectMeta: hostileMeta()}
	gates := make([]corev1.PodReadinessGate, 10_000)
	for i := range gates {
		gates[i].ConditionType = corev1.PodConditionType(fmt.Sprintf("example.com/gate-%d", i))
	}
	gates[9_999].ConditionType = appsv1alpha1.ServiceReadyGate
	hostile := []client.Object{
		&corev1.Pod{ObjectMeta: hostileMeta(), Spec: corev1.PodSpec{
			ReadinessGates: gates, NodeSelector: many("node", "value"), SecurityContext: &corev1.PodSecurityContext{SupplementalGroups: make([]int64, 100_000)},
			Containers: []corev1.Container{{Name: "web", Ports: ports(10_000)}},
		}},
		&corev1.Service{ObjectMeta: hostileMeta(), Spec: corev1.ServiceSpec{Selector: many("app", "web")}},
		&appsv1.ReplicaSet{ObjectMeta: hostileMeta(), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
		&appsv1.Deployment{ObjectMeta: hostileMeta(), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		&appsv1.StatefulSet{ObjectMeta: hostileMeta(), Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}},
		&appsv1.DaemonSet{ObjectMeta: hostileMeta(), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}},
		&batchv1.Job{ObjectMeta: hostileMeta(), Spec: batchv1.JobSpec{Selector: selector, Template: template}},
		&policyv1.PodDisruptionBudget{ObjectMeta: hostileMeta(), Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}},
		&appsv1alpha1.PodOperation{ObjectMeta: hostileMeta()},
	}
	for _, adapters := range []string{"", "demo"} {
		transforms := map[string]func(any) (any, error){}
		for kind, options := range cacheOptions(Options{Namespace: "podops-system", EnableAdapters: adapters}).ByObject {
			transforms[fmt.Sprintf("%T", kind)] = options.Transform
		}
		for _, object := range hostile {
			kind := fmt.Sprintf("%T", object)
			if transforms[kind] == nil {
				t.Errorf("%s has no transform", kind)
				continue
			}
			kept, err := transforms[kind](object.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(kept)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 160<<10 {
				t.Errorf("adapters %q: the cache keeps %d bytes of a %s", adapters, len(text), kind)
			}
		}
	}
}

// TestALargePodIsTheSameForItsLifecycle shows that the fields that decide about a lifecycle are left of a large pod.
func TestALargePodIsTheSameForItsLifecycle(t *testing.T) {
	pod := production()
	pod.Annotations["note"] = strings.Repeat("x", 200<<10)
	full := lifecycle.NewPodFacts(pod)
	cut := slimmed(t, pod)
	if _, has := cut.Annotations["note"]; has {
		t.Error("the annotation is kept")
	}
	if diff := cmp.Diff(full, lifecycle.NewPodFacts(cut)); diff != "" {
		t.Errorf("facts differ (-full +cut):\n%s", diff)
	}
	if owner := metav1.GetControllerOf(cut); !cmp.Equal(owner, metav1.GetControllerOf(pod)) {
		t.Errorf("the controller is %v", owner)
	}
}

// TestALargeServiceSelectsItsPods shows that a cut selector selects at least the pods of the whole.
func TestALargeServiceSelectsItsPods(t *testing.T) {
	service := &corev1.Service{Spec: corev1.ServiceSpec{Selector: many("app", "web")}}
	kept, err := slimService(service.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: service.Spec.Selector}}
	if slim := kept.(*corev1.Service); !podstate.Selects(slim, pod) || len(slim.Spec.Selector) == len(service.Spec.Selector) {
		t.Errorf("a selector of %d labels selects the pod: %t", len(slim.Spec.Selector), podstate.Selects(slim, pod))
	}
}

func ports(count int) []corev1.ContainerPort {
	named := make([]corev1.ContainerPort, count)
	for i := range named {
		named[i] = corev1.ContainerPort{Name: fmt.Sprintf("p%d", i), ContainerPort: int32(i)}
	}
	return named
}
