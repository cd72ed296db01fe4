package deferreddelete

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

func controlled(edit func(*corev1.Pod)) *corev1.Pod {
	controller := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-0", Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &controller}},
	}}
	edit(pod)
	return pod
}

func disrupted(status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: status, Reason: reason}}
	}
}

func TestMayDelete(t *testing.T) {
	now := metav1.Now()
	tests := map[string]struct {
		edit                 func(*corev1.Pod)
		owner                OwnerState
		namespaceTerminating bool
		want                 bool
	}{
		"a pod that serves is deferred": {edit: func(*corev1.Pod) {}},
		"a pod that waits is deferred": {edit: func(pod *corev1.Pod) {
			pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/pod-delete"] = "1"
		}},
		"a pod that prepares is deferred": {edit: func(pod *corev1.Pod) {
			pod.Labels[appsv1alpha1.PrepareLabelPrefix+"/pod-delete"] = "1"
		}},
		"a pod that is not under PodOps passes": {edit: func(pod *corev1.Pod) { pod.Labels = nil }, want: true},
		"a control label with another value is none": {edit: func(pod *corev1.Pod) {
			pod.Labels[appsv1alpha1.ControlLabelKey] = "yes"
		}, want: true},
		"the kubelet's final delete passes": {edit: func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }, want: true},
		"a pod that succeeded passes":       {edit: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, want: true},
		"a pod that failed passes":          {edit: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, want: true},
		"a mirror pod passes": {edit: func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, want: true},
		"a terminating namespace deletes its pods":                      {edit: func(*corev1.Pod) {}, namespaceTerminating: true, want: true},
		"the garbage collector may delete a pod without its owner":      {edit: func(*corev1.Pod) {}, owner: OwnerGone, want: true},
		"the garbage collector may delete a pod of a terminating owner": {edit: func(*corev1.Pod) {}, owner: OwnerTerminating, want: true},
		"a pod of a tainted node passes":                                {edit: disrupted(corev1.ConditionTrue, "DeletionByTaintManager"), want: true},
		"a pod of a tainted device passes":                              {edit: disrupted(corev1.ConditionTrue, "DeletionByDeviceTaintManager"), want: true},
		"a pod of a deleted node passes":                                {edit: disrupted(corev1.ConditionTrue, "DeletionByPodGC"), want: true},
		"a condition that was reset does not count":                     {edit: disrupted(corev1.ConditionFalse, "DeletionByTaintManager")},
		"an eviction that was denied later does not count":              {edit: disrupted(corev1.ConditionTrue, "EvictionByEvictionAPI")},
		"another condition with the reason does not count": {edit: func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}}
		}},
		"a pod that any id may operate on passes": {edit: func(pod *corev1.Pod) {
			pod.Labels[appsv1alpha1.OperateLabelPrefix+"/collaset"] = "1"
		}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := MayDelete(controlled(tc.edit), tc.owner, tc.namespaceTerminating); got != tc.want {
				t.Errorf("MayDelete = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAppliesTo(t *testing.T) {
	tests := map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"a pod of a ReplicaSet":       {edit: func(*corev1.Pod) {}, want: true},
		"a pod without an owner":      {edit: func(pod *corev1.Pod) { pod.OwnerReferences = nil }},
		"a pod of another controller": {edit: func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" }},
		"a pod that a ReplicaSet does not control": {edit: func(pod *corev1.Pod) {
			pod.OwnerReferences[0].Controller = nil
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := AppliesTo(controlled(tc.edit)); got != tc.want {
				t.Errorf("AppliesTo = %t, want %t", got, tc.want)
			}
		})
	}
}
