package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podOf returns a ready pod that should run one image, and runs another.
func podOf(name, wanted, running string, labels ...string) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: wanted}}},
		Status: corev1.PodStatus{
			PodIP:      "127.64.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Image: running, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	for _, key := range labels {
		pod.Labels[key] = "1"
	}
	return pod
}

func TestTheOperationControllerBeginsWaitsUpdatesAndEnds(t *testing.T) {
	starting := podOf("web-0", secondImage, secondImage, operatingLabel, typeLabel, operateLabel)
	starting.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	deleted := podOf("web-0", firstImage, firstImage)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want operation
	}{
		"an old pod":           {podOf("web-0", firstImage, firstImage), begin},
		"begun, not permitted": {podOf("web-0", firstImage, firstImage, operatingLabel, typeLabel), nothing},
		"allowed":              {podOf("web-0", firstImage, firstImage, operatingLabel, typeLabel, operateLabel), upgrade},
		"written, still old":   {podOf("web-0", secondImage, firstImage, operatingLabel, typeLabel, operateLabel), nothing},
		"written, not running": {starting, nothing},
		"runs":                 {podOf("web-0", secondImage, secondImage, operatingLabel, typeLabel, operateLabel), finish},
		"done":                 {podOf("web-0", secondImage, secondImage), nothing},
		"being deleted":        {deleted, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextWith(&tc.pod, secondImage); got != tc.want {
				t.Errorf("next step is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWithoutPodOpsTheNumberOfUpdatedPodsIsBounded(t *testing.T) {
	var pods []corev1.Pod
	for n := range 4 {
		pods = append(pods, podOf(fmt.Sprintf("web-%d", n), firstImage, firstImage))
	}
	steps := func(want ...string) {
		t.Helper()
		var got []string
		all := nextWithout(pods, secondImage, 2)
		for _, pod := range pods {
			if all[pod.Name] == upgrade {
				got = append(got, pod.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pods to update (-want +got):\n%s", diff)
		}
	}
	steps("web-0", "web-1")
	pods[0], pods[1] = podOf("web-0", secondImage, firstImage), podOf("web-1", secondImage, secondImage)
	pods[1].Status.Conditions = nil // it runs, and is not ready
	steps()
	pods[1] = podOf("web-1", secondImage, secondImage)
	steps("web-2")
	pods[0] = podOf("web-0", secondImage, secondImage)
	steps("web-2", "web-3")
}

func TestScenariosDetectTheirEnd(t *testing.T) {
	g := &scenarioRun{scenario: scenario{replicas: 2}, first: []types.UID{"a", "b"}}
	for name, tc := range map[string]struct {
		pods         []corev1.Pod
		wantReplaced bool
		wantUpdated  bool
	}{
		"before":       {pods: []corev1.Pod{podOf("a", firstImage, firstImage), podOf("b", firstImage, firstImage)}},
		"one is left":  {pods: []corev1.Pod{podOf("a", firstImage, firstImage), podOf("c", firstImage, firstImage)}},
		"all replaced": {pods: []corev1.Pod{podOf("c", firstImage, firstImage), podOf("d", firstImage, firstImage)}, wantReplaced: true},
		"all updated": {
			pods: []corev1.Pod{podOf("a", secondImage, secondImage), podOf("b", secondImage, secondImage)}, wantUpdated: true,
		},
		"one does not run the image": {pods: []corev1.Pod{podOf("a", secondImage, secondImage), podOf("b", secondImage, firstImage)}},
		"one is not finished":        {pods: []corev1.Pod{podOf("a", secondImage, secondImage), podOf("b", secondImage, secondImage, operatingLabel)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, seen := replaced(g, tc.pods); got != tc.wantReplaced {
				t.Errorf("replaced = %t: %s", got, seen)
			}
			if got, seen := updated(g, tc.pods); got != tc.wantUpdated {
				t.Errorf("updated = %t: %s", got, seen)
			}
		})
	}
}
