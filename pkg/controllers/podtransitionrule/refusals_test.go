package podtransitionrule

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
)

// hurried answers only about the first requests that it is asked about, and uses up the time of
// the round with them.
type hurried struct {
	program
	station *station
	most    int
	reached []string
}

func (h *hurried) Needs() opa.Needs { return opa.Needs{Pods: true} }

func (h *hurried) Evaluate(
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
	h.station.clock.SetTime(h.station.clock.Now().Add(defaultRoundBudget))
	return result, nil
}

// TestWhoWasNotReachedComesFirst: with more pods than a round has time for, every pod is
// asked about in turn, and those in between keep their reason.
func TestWhoWasNotReachedComesFirst(t *testing.T) {
	s := newStation(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 100"))
	for i := range 5 {
		s.put(waits(i).Obj())
	}
	rule := s.prepared("web")[0]
	h := &hurried{program: rule.program, station: s, most: 2}
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
	s := newStation(t, opa.Options{})
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
type stuck struct{ hurried }

func (s *stuck) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	reached, most := len(s.reached), s.most
	if requests[0].Pod.Name == "web-000" {
		s.most = 0
	}
	result, err := s.hurried.Evaluate(ctx, stage, env, requests)
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
	s := newStation(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 100"))
	for i := range 3 {
		s.put(waits(i).Obj())
	}
	rule := s.prepared("web")[0]
	never := &stuck{hurried{program: rule.program, station: s, most: 1}}
	rule.program = never
	for range 7 {
		s.step(statusInterval)
	}
	// Of three rounds one is for the pod that never fits.
	if want := []string{"web-001", "web-002", "web-001", "web-002"}; !slices.Equal(never.reached, want) {
		t.Errorf("asked about %v, want %v", never.reached, want)
	}
}

// TestJudgesTakeTurns shows that with time for the judges of one pod in a round each pod has its turn,
// although none is permitted.
func TestJudgesTakeTurns(t *testing.T) {
	s := newStation(t, opa.Options{})
	s.rules("web", inline("mine", "allow if count(input.pods) > 0"))
	for i := range 4 {
		s.put(waits(i).Obj())
	}
	rule := s.prepared("web")[0]
	dependsOnPods := &judging{program: rule.program, station: s}
	rule.program = dependsOnPods
	for range 8 {
		s.step(statusInterval)
	}
	if want := append(names(0, 4), names(0, 4)...); !slices.Equal(dependsOnPods.judged, want) {
		t.Errorf("judged %v, want %v", dependsOnPods.judged, want)
	}
}

// judging lets every pod pass at first, and refuses one at a time when it is to be permitted, for which it
// uses up the round.
type judging struct {
	program
	station *station
	judged  []string
}

func (j *judging) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, _ rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	if len(requests) > 1 {
		for _, request := range requests {
			result.Verdicts[request.Key()] = rule.Verdict{Outcome: rule.Passed}
		}
		return result, nil
	}
	j.judged = append(j.judged, requests[0].Pod.Name)
	j.station.clock.SetTime(j.station.clock.Now().Add(defaultRoundBudget))
	result.Verdicts[requests[0].Key()] = rule.Verdict{Code: rule.CodeDenied, Message: "no"}
	return result, nil
}
