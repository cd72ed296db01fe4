package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/traffic/load"
)

// at is a moment of a test, in seconds.
func at(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }

func podIn(name string, ready bool, labels ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue,
	}}}
	for _, key := range labels {
		pod.Labels[key] = "1"
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return pod
}

func serving(name string) *corev1.Pod {
	return podIn(name, true, appsv1alpha1.ServiceAvailableLabelKey)
}

func prepared(name string) *corev1.Pod {
	return podIn(name, false, appsv1alpha1.PrepareLabelPrefix+"/pod-delete")
}

func TestRecordCountsAgainstTheDesiredNumber(t *testing.T) {
	r := newRecord(2)
	r.set(serving("a"), at(0))
	r.set(serving("b"), at(0))
	r.startRollout()
	r.set(podIn("c", false), at(1)) // still starting
	if worst := r.worstSoFar(); worst != 0 {
		t.Errorf("a starting pod counts as unavailable: %d", worst)
	}
	r.set(serving("c"), at(2))
	r.set(prepared("a"), at(3))
	if worst := r.worstSoFar(); worst != 0 {
		t.Errorf("while the desired two serve: worst = %d, want 0", worst)
	}
	r.set(prepared("b"), at(4))
	if worst := r.worstSoFar(); worst != 1 {
		t.Errorf("while one of the desired two serves: worst = %d, want 1", worst)
	}
	r.set(prepared("c"), at(4))
	if worst := r.worstSoFar(); worst != 2 {
		t.Errorf("while none of the desired two serves: worst = %d, want 2", worst)
	}
}

func TestRecordSeesTheEndOfARollout(t *testing.T) {
	r := newRecord(1)
	r.set(serving("old"), at(0))
	r.startRollout()
	if r.rolled() {
		t.Error("rolled before anything happened")
	}
	r.set(serving("new"), at(1))
	if r.rolled() {
		t.Error("rolled while the old pod is there")
	}
	r.remove("old", at(2))
	if !r.rolled() {
		t.Error("not rolled after the old pod went")
	}
}

func TestSummary(t *testing.T) {
	r := newRecord(1)
	r.set(serving("old"), at(0))
	r.startRollout()
	r.set(podIn("old", true, appsv1alpha1.ServiceAvailableLabelKey, appsv1alpha1.PreCheckLabelPrefix+"/pod-delete"), at(1))
	r.set(prepared("old"), at(4))
	r.set(podIn("old", false, appsv1alpha1.OperateLabelPrefix+"/pod-delete"), at(6))
	r.set(podIn("new", false), at(6))
	r.set(serving("new"), at(7))
	r.remove("old", at(8))
	s := r.summarize(3, 9*time.Second, writes{pods: 5, adapter: 4, rules: 2, events: 7})
	s.requests = &load.Report{Totals: load.Totals{Requests: 100}}
	var out bytes.Buffer
	s.print(&out)
	want := `
pods rolled: 1 of 1 in 9s
max unavailable: 1 (limit 3)
operator writes per pod: 5.0 (at most 5)
operator writes: 5 to pods, 4 to pods by the adapter of the load balancer, 2 to rules, 7 events

               time per phase  pods  p50  p99
           waiting (PreCheck)     1   3s   3s
      traffic off (Preparing)     1   2s   2s
  removal (Operating to gone)     1   2s   2s
  new pod to ServiceAvailable     1   1s   1s

requests: 100 failed: 0

It held: 1 of 1 rolled, at most 1 unavailable (limit 3), 100 requests, 0 failed.

` + whatNext
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(out.String())); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if !s.ok() {
		t.Error("a rollout within its limit is not ok")
	}
	s.requests.Failed = 1
	if s.ok() {
		t.Error("a rollout that lost a request is ok")
	}
	s.requests.Failed, s.worst = 0, 4
	if s.ok() {
		t.Error("a rollout beyond its limit is ok")
	}
	s.worst, s.replaced = 0, 0
	if s.ok() {
		t.Error("a rollout that left a pod is ok")
	}
}

func TestPercentileIsByNearestRank(t *testing.T) {
	s := span{took: []time.Duration{4, 1, 3, 2}}
	for percent, want := range map[int]time.Duration{50: 2, 99: 4, 25: 1, 100: 4} {
		if got := s.percentile(percent); got != want {
			t.Errorf("percentile(%d) = %d, want %d", percent, got, want)
		}
	}
	if got := (span{}).percentile(50); got != 0 {
		t.Errorf("percentile of nothing = %d, want 0", got)
	}
}

func TestSummaryOfALostRequestDoesNotClaimThatItHeld(t *testing.T) {
	s := summary{desired: 1, replaced: 1, requests: &load.Report{Totals: load.Totals{Requests: 100, Failed: 1}}}
	var out bytes.Buffer
	s.print(&out)
	if strings.Contains(out.String(), "It held") {
		t.Errorf("summary of a rollout that lost a request:\n%s", out.String())
	}
}
