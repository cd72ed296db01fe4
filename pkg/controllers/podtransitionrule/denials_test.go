package podtransitionrule

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// timed evaluates only the first requests, and uses up the time of
// the round with them.
type timed struct {
	evaluation.Program
	harness *harness
	most    int
	reached []string
}

func (h *timed) Needs() opa.Needs { return opa.Needs{Pods: true} }

func (h *timed) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, _ rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	for i, request := range requests {
		verdict := rule.Verdict{Code: rule.CodeNotReached}
		if i < h.most {
			verdict = rule.Verdict{Code: rule.CodeDenied, Message: fmt.Sprint("no to ", request.Pod.Name)}
			h.reached = append(h.reached, request.Pod.Name)
		}
		result.Verdicts[request.Key()] = verdict
	}
	h.harness.clock.SetTime(h.harness.clock.Now().Add(evaluation.DefaultBudget))
	return result, nil
}

// TestPodsThatWereNotReachedComeFirst shows that with more pods than a round has time for, every pod is
// evaluated in turn, and the pods in between keep their reason.
func TestPodsThatWereNotReachedComeFirst(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 100"))
	for i := range 5 {
		s.put(waits(i).Obj())
	}
	h := &timed{harness: s, most: 2}
	s.intercept("web", func(_ int, program evaluation.Program) evaluation.Program { h.Program = program; return h })
	for range 3 {
		if result := s.step(statusInterval); result.RequeueAfter != evaluation.RetryStale {
			t.Errorf("comes back after %s, want %s", result.RequeueAfter, evaluation.RetryStale)
		}
	}
	want := []string{"web-000", "web-001", "web-002", "web-003", "web-004", "web-000"}
	if diff := cmp.Diff(want, h.reached); diff != "" {
		t.Errorf("evaluated for (-want +got):\n%s", diff)
	}
	s.step(statusInterval)
	for _, blocked := range s.object("web").Status.Blocked {
		if blocked.Message != "no to "+blocked.Name {
			t.Errorf("%s waits for %s: %s", blocked.Name, blocked.Reason, blocked.Message)
		}
	}
}

// TestANamespaceThatWasNotSeenPermitsNoPod shows that it is not evaluated as one without labels.
func TestANamespaceThatWasNotSeenPermitsNoPod(t *testing.T) {
	s := newHarness(t, opa.Options{})
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

// stuck never has time enough for the first pod, and uses up the round with it if that comes first.
type stuck struct{ timed }

func (s *stuck) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	reached, most := len(s.reached), s.most
	if requests[0].Pod.Name == "web-000" {
		s.most = 0
	}
	result, err := s.timed.Evaluate(ctx, stage, env, requests)
	for _, request := range requests {
		if request.Pod.Name == "web-000" {
			result.Verdicts[request.Key()] = rule.Verdict{Code: rule.CodeNotReached}
		}
	}
	s.reached = slices.DeleteFunc(s.reached, func(name string) bool { return name == "web-000" })
	s.most, result.CPUTime = most, time.Duration(1+len(s.reached)-reached)*time.Millisecond
	return result, err
}

// TestAPodThatNeverFitsIntoARoundStopsNoOther shows that it has its turn like others, and no more turns.
func TestAPodThatNeverFitsIntoARoundStopsNoOther(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 100"))
	for i := range 3 {
		s.put(waits(i).Obj())
	}
	never := &stuck{timed{harness: s, most: 1}}
	s.intercept("web", func(_ int, program evaluation.Program) evaluation.Program { never.Program = program; return never })
	for range 7 {
		s.step(statusInterval)
	}
	// Of three rounds one is for the pod that never fits.
	if want := []string{"web-001", "web-002", "web-001", "web-002"}; !slices.Equal(never.reached, want) {
		t.Errorf("evaluated for %v, want %v", never.reached, want)
	}
}

// TestRechecksTakeTurns shows that with time for the rechecks of one pod in a round each pod has its turn,
// although none is permitted.
func TestRechecksTakeTurns(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 0"))
	for i := range 4 {
		s.put(waits(i).Obj())
	}
	dependsOnPods := &rechecking{harness: s}
	s.intercept("web", func(_ int, program evaluation.Program) evaluation.Program {
		dependsOnPods.Program = program
		return dependsOnPods
	})
	for range 8 {
		s.step(statusInterval)
	}
	if want := append(names(0, 4), names(0, 4)...); !slices.Equal(dependsOnPods.rechecked, want) {
		t.Errorf("rechecked %v, want %v", dependsOnPods.rechecked, want)
	}
}

// rechecking lets every pod pass at first, and refuses one at a time when it is to be permitted, for which it
// uses up the round.
type rechecking struct {
	evaluation.Program
	harness   *harness
	rechecked []string
}

func (j *rechecking) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, _ rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	if len(requests) > 1 {
		for _, request := range requests {
			result.Verdicts[request.Key()] = rule.Verdict{Outcome: rule.Passed}
		}
		return result, nil
	}
	j.rechecked = append(j.rechecked, requests[0].Pod.Name)
	j.harness.clock.SetTime(j.harness.clock.Now().Add(evaluation.DefaultBudget))
	result.Verdicts[requests[0].Key()] = rule.Verdict{Code: rule.CodeDenied, Message: "no"}
	return result, nil
}
