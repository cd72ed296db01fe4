package stagetest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Unavailable returns a rule that lets so many pods be unavailable at a time.
func Unavailable(value intstr.IntOrString) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "available", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &value}}
}

// OneAtATime returns a rule that lets one pod be unavailable at a time.
func OneAtATime() appsv1alpha1.TransitionRule { return Unavailable(intstr.FromInt32(1)) }

// Approved returns a rule that withholds pods until Approve.
func Approved() appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{
		Requires: &metav1.LabelSelector{MatchLabels: map[string]string{ApprovedLabelKey: "true"}},
	}}
}

// Selected returns the selector for pods made from Template.
func Selected() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

// Rule returns a PodTransitionRule for the pods of Template.
func (s *Scene) Rule(rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: s.Meta("web"), Spec: appsv1alpha1.PodTransitionRuleSpec{Selector: Selected(), Rules: rules},
	}
}

// Meta returns the metadata of an object in the namespace.
func (s *Scene) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name}
}

// Template returns the template of controlled pods.
func (s *Scene) Template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"app": "web", SceneLabelKey: s.Namespace, appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
		}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1"}},
		},
	}
}
