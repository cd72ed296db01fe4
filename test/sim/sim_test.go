package sim_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/test/sim"
)

func TestUpdatesOfOldVersionsConflict(t *testing.T) {
	versions := &sim.Versions{}
	pods, records := sim.NewServer[string](versions), sim.NewServer[int](versions)
	first := pods.Put("a", "one")
	if _, err := records.Update("r", 0, 1); err != nil {
		t.Fatalf("creating a record: %v", err)
	}
	second, err := pods.Update("a", first.Version, "two")
	if err != nil || second.Version != 3 {
		t.Fatalf("updating the current version: %+v, %v, want version 3", second, err)
	}
	if _, err := pods.Update("a", first.Version, "three"); !errors.Is(err, sim.ErrConflict) {
		t.Errorf("updating an old version: %v, want ErrConflict", err)
	}
	if got := pods.Get("a"); got != second {
		t.Errorf("stored is %+v, want %+v", got, second)
	}
	view, version := pods.View(1)
	if view["a"] != first || version != first.Version {
		t.Errorf("the view after one write has %+v at version %d, want %+v", view, version, first)
	}
}

func TestTheKubeletReportsReadiness(t *testing.T) {
	const gate = "example.com/gate"
	clock := sim.NewClock()
	for sentence, tc := range map[string]struct {
		healthy, open bool
		reason        string // of Ready; empty: it is True
	}{
		"containers and gates are ready":   {healthy: true, open: true},
		"a gate is closed":                 {healthy: true, reason: "ReadinessGatesNotReady"},
		"containers are not ready":         {open: true, reason: "ContainersNotReady"},
		"neither containers nor gates are": {reason: "ContainersNotReady"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: gate}}}}
		sim.SetCondition(pod, gate, tc.open, "", clock.Now())
		sim.Kubelet{Healthy: tc.healthy}.Report(pod, clock.Now())
		if got := sim.IsTrue(pod, corev1.PodReady); got != (tc.reason == "") {
			t.Errorf("%s: Ready is %v", sentence, got)
		}
		if got := sim.Condition(pod, corev1.PodReady).Reason; got != tc.reason {
			t.Errorf("%s: the reason is %q, want %q", sentence, got, tc.reason)
		}
	}
}

func TestTheTransitionTimeChangesWithTheStatus(t *testing.T) {
	pod, clock := &corev1.Pod{}, sim.NewClock()
	sim.SetCondition(pod, corev1.PodReady, true, "", clock.Now())
	clock.Step(time.Minute)
	sim.SetCondition(pod, corev1.PodReady, true, "Again", clock.Now())
	if got := sim.Condition(pod, corev1.PodReady); !got.LastTransitionTime.Time.Equal(sim.Epoch) || got.Reason != "Again" {
		t.Errorf("the same status: %+v, want the first transition time", got)
	}
	sim.SetCondition(pod, corev1.PodReady, false, "", clock.Now())
	if got := sim.Condition(pod, corev1.PodReady); !got.LastTransitionTime.Time.Equal(clock.Now()) {
		t.Errorf("another status: %+v, want the time of the change", got)
	}
	sim.RemoveCondition(pod, corev1.PodReady)
	if sim.Condition(pod, corev1.PodReady) != nil {
		t.Error("the condition was not removed")
	}
}
