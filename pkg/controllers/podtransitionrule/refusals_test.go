package podtransitionrule

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

// hurried answers only about the first requests that it is asked about.
type hurried struct {
	program
	most    int
	reached []string
}

func (h *hurried) Needs() engine.Needs { return engine.Needs{Pods: true} }

func (h *hurried) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, _ policy.Surroundings, requests []policy.Request,
) (policy.Result, error) {
	result := policy.Result{Verdicts: map[string]policy.Verdict{}}
	for i, request := range requests {
		verdict := policy.Verdict{Code: policy.CodeNotReached}
		if i < h.most {
			verdict = policy.Verdict{Code: policy.CodeDenied, Message: fmt.Sprint("no to ", request.Pod.Name)}
			h.reached = append(h.reached, request.Pod.Name)
		}
		result.Verdicts[request.Key()] = verdict
	}
	return result, nil
}

// TestWhoWasNotReachedComesFirst: with more pods than a round has time for, every pod is
// asked about in turn, and those in between keep their reason.
func TestWhoWasNotReachedComesFirst(t *testing.T) {
	s := newStation(t, engine.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 100"))
	for i := range 5 {
		s.put(waits(i).Obj())
	}
	rule := s.reconciler.programs.of(t.Context(), s.object("web"), nil)[0]
	h := &hurried{program: rule.program, most: 2}
	rule.program = h
	for range 3 {
		if result := s.step(statusInterval); result.RequeueAfter != retryStale {
			t.Errorf("comes back after %s, want %s", result.RequeueAfter, retryStale)
		}
	}
	want := []string{"web-000", "web-001", "web-002", "web-003", "web-004", "web-000"}
	if diff := cmp.Diff(want, h.reached); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	s.step(statusInterval)
	for _, blocked := range s.object("web").Status.Blocked {
		if blocked.Message != "no to "+blocked.Name {
			t.Errorf("%s waits for %s: %s", blocked.Name, blocked.Reason, blocked.Message)
		}
	}
}

// TestANamespaceThatWasNotSeenOpensNoDoor: it is not taken for one without labels.
func TestANamespaceThatWasNotSeenOpensNoDoor(t *testing.T) {
	s := newStation(t, engine.Options{})
	s.rules("web", inline("mine", `deny contains "an alert is on" if input.namespace.labels.alert`))
	s.put(waits(0).Obj())
	s.round()
	if got, want := s.blocked(), "Undefined: the namespace has not been seen yet"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.index.SetNamespace("default", map[string]string{"alert": "fire"})
	s.step(statusInterval)
	if got, want := s.blocked(), "Denied: an alert is on"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.index.SetNamespace("default", map[string]string{})
	s.step(statusInterval)
	if diff := cmp.Diff(names(0, 1), s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
}
