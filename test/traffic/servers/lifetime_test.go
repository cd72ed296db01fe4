package servers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runs returns a pod whose only container runs for the n-th time.
func runs(name, ip string, n int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid")},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "server", RestartCount: n, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}

func TestProcessRunsExactlyAsLongAsTheContainers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a running pod":        {change: func(*corev1.Pod) {}, want: true},
		"not ready is running": {change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, want: true},
		"no address yet":       {change: func(p *corev1.Pod) { p.Status.PodIP = "" }},
		"about to start": {change: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		}, want: true},
		"about to start again": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
		}},
		"no container reported":  {change: func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }},
		"deleted: SIGTERM":       {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"failed":                 {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"its container restarts": {change: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }},
		"one of two containers runs": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "other"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := runs("web-0", "127.64.9.1", 0)
			tc.change(pod)
			if _, got := processOf(pod); got != tc.want {
				t.Errorf("runs = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestARestartedContainerIsAnotherProcess(t *testing.T) {
	before, _ := processOf(runs("web-0", "127.64.9.1", 0))
	same, _ := processOf(runs("web-0", "127.64.9.1", 0))
	after, _ := processOf(runs("web-0", "127.64.9.1", 1))
	if before != same {
		t.Errorf("the same containers are different processes: %v, %v", before, same)
	}
	if before == after {
		t.Errorf("a restarted container is the same process: %v", before)
	}
}
