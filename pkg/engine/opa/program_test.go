package opa_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func TestEvaluate(t *testing.T) {
	counts := rule.Counts{Selected: 12, Desired: 12, Available: 11, Reserved: 1}
	capacity := rule.Capacity{Slots: 1, Selected: 12, Desired: 12, Available: 10, MaxUnavailable: 3, MinAvailable: -1}
	full := capacity
	full.Slots, full.MaxUnavailable = 0, 2
	warned := func(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionRule {
		rule.Enforcement = appsv1alpha1.EnforcementWarn
		return rule
	}
	for name, tc := range map[string]struct {
		rule     appsv1alpha1.TransitionRule
		requests []rule.Request
		want     rule.Result
	}{
		"labelCheck passes and withholds": {
			rule:     labelCheck("ready"),
			requests: []rule.Request{request(0, true), request(1, true)},
			want: rule.Result{Verdicts: map[string]rule.Verdict{
				"uid-0/PreCheck/a": {Outcome: rule.Passed},
				"uid-1/PreCheck/a": {Code: rule.CodeLabelMismatch},
			}},
		},
		"labelCheck that warns": {
			rule:     warned(labelCheck("ready")),
			requests: []rule.Request{request(1, true)},
			want: rule.Result{Verdicts: map[string]rule.Verdict{
				"uid-1/PreCheck/a": {Outcome: rule.Passed, Would: rule.CodeLabelMismatch},
			}},
		},
		"labelCheck without requests": {
			rule: labelCheck("ready"),
			want: rule.Result{Verdicts: map[string]rule.Verdict{}},
		},
		"availablePolicy needs slots": {
			rule:     budget("25%"),
			requests: []rule.Request{request(0, true), request(1, false)},
			want: rule.Result{Capacity: &capacity, Verdicts: map[string]rule.Verdict{
				"uid-0/PreCheck/a": {Outcome: rule.NeedsSlot},
				"uid-1/PreCheck/a": {Outcome: rule.Passed},
			}},
		},
		"availablePolicy that warns, without slots": {
			rule:     warned(budget("2")),
			requests: []rule.Request{request(0, true), request(1, false)},
			want: rule.Result{Capacity: &full, Verdicts: map[string]rule.Verdict{
				"uid-0/PreCheck/a": {Outcome: rule.Passed, Would: rule.CodeNoRoom},
				"uid-1/PreCheck/a": {Outcome: rule.Passed},
			}},
		},
		"availablePolicy without requests returns its capacity": {
			rule: budget("25%"),
			want: rule.Result{Capacity: &capacity, Verdicts: map[string]rule.Verdict{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prepared(t, tc.rule).Evaluate(t.Context(), appsv1alpha1.StagePreCheck, rule.Environment{Counts: counts}, tc.requests)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("result differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvaluateManyRequests has more requests than one batch.
func TestEvaluateManyRequests(t *testing.T) {
	counts := rule.Counts{Selected: 2000, Desired: 2000, Available: 1900}
	requests := []rule.Request{}
	for i := range 600 {
		requests = append(requests, request(i, i%3 != 0))
	}
	for _, entry := range []appsv1alpha1.TransitionRule{labelCheck("ready"), budget("25%")} {
		for _, size := range []int{255, 256, 257, 600} {
			got, err := prepared(t, entry).Evaluate(t.Context(), appsv1alpha1.StagePreCheck, rule.Environment{Counts: counts}, requests[:size])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reference(entry, counts, requests[:size]), got); diff != "" {
				t.Errorf("%d requests: result differs (-reference +Rego):\n%s", size, diff)
			}
		}
	}
}

// TestEvaluateSeesTheNewVersion checks that pods are cached by UID and version, both of them.
func TestEvaluateSeesTheNewVersion(t *testing.T) {
	program := prepared(t, labelCheck("ready"))
	outcome := func(request rule.Request) rule.Outcome {
		result, err := program.Evaluate(t.Context(), request.Stage, rule.Environment{}, []rule.Request{request})
		if err != nil {
			t.Fatal(err)
		}
		return result.Verdicts[request.Key()].Outcome
	}
	before := request(1, true)
	if got := outcome(before); got != rule.Withheld {
		t.Fatalf("outcome is %d, want withheld", got)
	}
	after := request(1, true)
	after.Pod.Version = "8"
	after.Pod.Labels = map[string]string{"ready": "true"}
	if got := outcome(after); got != rule.Passed {
		t.Errorf("outcome after the change is %d, want passed", got)
	}
	unversioned := request(1, true)
	unversioned.Pod.Version = ""
	outcome(unversioned)
	unversioned.Pod.Labels = map[string]string{"ready": "true"}
	if got := outcome(unversioned); got != rule.Passed {
		t.Errorf("outcome of a pod without version is %d, want passed", got)
	}
}

func TestEvaluateRejectsInvalidRequests(t *testing.T) {
	twice := []rule.Request{request(0, true), request(0, false)}
	elsewhere := request(0, true)
	elsewhere.Stage = appsv1alpha1.StagePostCheck
	withoutPod := request(0, true)
	withoutPod.Pod = nil
	for name, tc := range map[string]struct {
		stage    appsv1alpha1.TransitionStage
		requests []rule.Request
	}{
		"in another stage":               {stage: appsv1alpha1.StagePostCheck, requests: []rule.Request{elsewhere}},
		"about a request of other stage": {stage: appsv1alpha1.StagePreCheck, requests: []rule.Request{elsewhere}},
		"about a request without a pod":  {stage: appsv1alpha1.StagePreCheck, requests: []rule.Request{withoutPod}},
		"about one request twice":        {stage: appsv1alpha1.StagePreCheck, requests: twice},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := prepared(t, labelCheck("ready")).Evaluate(t.Context(), tc.stage, rule.Environment{}, tc.requests)
			if err == nil {
				t.Errorf("answered: %v", result)
			}
		})
	}
}

// handmade returns a module in a form that package render does not return.
func handmade(t *testing.T, kind rule.Kind, options opa.Options, decision string) *opa.Program {
	t.Helper()
	program, err := newEngine(t, options).PrepareSource(t.Context(), spec.Module{
		Kind:  kind,
		Stage: appsv1alpha1.StagePreCheck,
		// It reads the type of the operation: requests of one type share a verdict.
		Literal: json.RawMessage(`{"conditions": ["update"]}`),
	}, "package podops.compiled.handmade\n\nkeys := object.keys(input.requests)\n\n"+decision+"\n")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestEvaluateFailsOnBrokenDecisions(t *testing.T) {
	const capacity = `{"slots": 1, "selected": 1, "desired": 1, "available": 1, "max_unavailable": 1, "min_available": -1}`
	for name, tc := range map[string]struct {
		kind     rule.Kind
		decision string
	}{
		"undefined":        {decision: `decision := 1 if count(keys) > 100`},
		"a conflict":       {decision: `decision := key if some key in keys`},
		"a builtin error":  {decision: `decision := 1 / (count(keys) - 2)`},
		"not a document":   {decision: `decision := "yes"`},
		"no passed":        {decision: `decision := {"needs_slot": set(), "withheld": {}, "would": {}}`},
		"no takes":         {decision: `decision := {"passed": keys, "withheld": {}, "would": {}}`},
		"no withheld":      {decision: `decision := {"passed": keys, "needs_slot": set(), "would": {}}`},
		"no would":         {decision: `decision := {"passed": keys, "needs_slot": set(), "withheld": {}}`},
		"passed as a list": {decision: `decision := {"passed": [k | some k in keys], "needs_slot": set(), "withheld": {}, "would": {}}`},
		"no capacity": {
			kind:     rule.KindAvailablePolicy,
			decision: `decision := {"passed": set(), "needs_slot": keys, "withheld": {}, "would": {}}`,
		},
		"a capacity with a broken number": {
			kind: rule.KindAvailablePolicy,
			decision: `decision := {"passed": set(), "needs_slot": keys, "withheld": {}, "would": {}, "capacity": capacity}
capacity := object.union(` + capacity + `, {"slots": 1.5})`,
		},
		"a capacity with a text": {
			kind: rule.KindAvailablePolicy,
			decision: `decision := {"passed": set(), "needs_slot": keys, "withheld": {}, "would": {}, "capacity": capacity}
capacity := object.union(` + capacity + `, {"desired": "1"})`,
		},
		"a capacity with slots below zero": {
			kind: rule.KindAvailablePolicy,
			decision: `decision := {"passed": set(), "needs_slot": keys, "withheld": {}, "would": {}, "capacity": capacity}
capacity := object.union(` + capacity + `, {"slots": -1})`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			program := handmade(t, tc.kind, opa.Options{}, tc.decision)
			requests := []rule.Request{request(0, true), request(1, true)}
			requests[1].Type = "delete"
			result, err := program.Evaluate(t.Context(), appsv1alpha1.StagePreCheck, rule.Environment{}, requests)
			if err == nil {
				t.Fatalf("answered: %v", result)
			}
			if len(result.Verdicts) > 0 {
				t.Errorf("verdicts came with the error: %v", result.Verdicts)
			}
			if want := name == "undefined"; errors.Is(err, opa.ErrUndefined) != want {
				t.Errorf("ErrUndefined is %v of %v, want %v", !want, err, want)
			}
		})
	}
}

// TestEvaluateWithholdsUnclearAnswers checks that a request without a clear verdict is withheld,
// and that the other requests of the batch are not affected.
func TestEvaluateWithholdsUnclearAnswers(t *testing.T) {
	for name, decision := range map[string]string{
		"in no part":                  `{"passed": set(), "needs_slot": set(), "withheld": {}, "would": {}}`,
		"passed and withheld":         `{"passed": keys, "needs_slot": set(), "withheld": {k: "No" | some k in keys}, "would": {}}`,
		"passed and needs_slot":       `{"passed": keys, "needs_slot": keys, "withheld": {}, "would": {}}`,
		"needs_slot and withheld":     `{"passed": set(), "needs_slot": keys, "withheld": {k: "No" | some k in keys}, "would": {}}`,
		"needs_slot without capacity": `{"passed": set(), "needs_slot": keys, "withheld": {}, "would": {}}`,
		"withheld without a code":     `{"passed": set(), "needs_slot": set(), "withheld": {k: "" | some k in keys}, "would": {}}`,
		"withheld with a number":      `{"passed": set(), "needs_slot": set(), "withheld": {k: 1 | some k in keys}, "would": {}}`,
		"would with a number":         `{"passed": keys, "needs_slot": set(), "withheld": {}, "would": {k: 1 | some k in keys}}`,
		"keys of other requests":      `{"passed": {"x"}, "needs_slot": {"y"}, "withheld": {"z": "No"}, "would": {}}`,
	} {
		t.Run(name, func(t *testing.T) {
			program := handmade(t, rule.KindRego, opa.Options{}, "decision := "+decision)
			got, err := program.Evaluate(t.Context(), appsv1alpha1.StagePreCheck, rule.Environment{},
				[]rule.Request{request(0, true)})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]rule.Verdict{"uid-0/PreCheck/a": {Code: rule.CodeUndefined}}
			if diff := cmp.Diff(want, got.Verdicts); diff != "" {
				t.Errorf("verdicts differ (-want +got):\n%s", diff)
			}
		})
	}
}

// slow compares every request with every other one, three times: minutes of work.
const slow = `decision := {"passed": {k | some k in keys; some a in keys; some b in keys; some c in keys; a < b; b < c},
	"needs_slot": set(), "withheld": {}, "would": {}}`

func TestEvaluateEndsAtTheTimeout(t *testing.T) {
	requests := []rule.Request{}
	for i := range 250 {
		requests = append(requests, request(i, true))
		requests[i].Type = fmt.Sprint(i)
	}
	program := handmade(t, rule.KindRego, opa.Options{Timeout: 20 * time.Millisecond}, slow)
	began := time.Now()
	_, err := program.Evaluate(t.Context(), appsv1alpha1.StagePreCheck, rule.Environment{}, requests)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestEvaluateEndsWithItsContext(t *testing.T) {
	requests := []rule.Request{}
	for i := range 250 {
		requests = append(requests, request(i, true))
		requests[i].Type = fmt.Sprint(i)
	}
	program := handmade(t, rule.KindRego, opa.Options{Timeout: time.Hour}, slow)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := program.Evaluate(ctx, appsv1alpha1.StagePreCheck, rule.Environment{}, requests); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if _, err := program.Evaluate(ctx, appsv1alpha1.StagePreCheck, rule.Environment{}, requests[:1]); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of a context that is over, want the cancellation", err)
	}
}

func TestNoPanicLeavesTheEngine(t *testing.T) {
	_, err := (&opa.Program{}).Evaluate(t.Context(), "", rule.Environment{}, []rule.Request{{Pod: &rule.PodFact{}}})
	panicked := &opa.PanicError{}
	if !errors.As(err, &panicked) || len(panicked.Stack) == 0 {
		t.Errorf("Evaluate of a zero program gave %v, want a PanicError with a stack", err)
	}
	if _, err = (&opa.Engine{}).Prepare(t.Context(), spec.Module{Kind: rule.KindLabelCheck}); !errors.As(err, &panicked) {
		t.Errorf("Prepare of a zero engine gave %v, want a PanicError", err)
	}
}

// TestEvaluateConcurrently shares programs and cached pods between goroutines, for the race
// detector.
func TestEvaluateConcurrently(t *testing.T) {
	e := newEngine(t, opa.Options{Memory: 40_000})
	rules := []appsv1alpha1.TransitionRule{labelCheck("ready"), labelCheck("fit"), budget("25%"), budget("3")}
	counts := rule.Counts{Selected: 12, Desired: 12, Available: 12}
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for round := range 20 {
				rule := rules[(worker+round)%len(rules)]
				if err := evaluateOnce(t, e, rule, counts); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
}

func evaluateOnce(t *testing.T, e *opa.Engine, entry appsv1alpha1.TransitionRule, counts rule.Counts) error {
	program, err := e.Prepare(t.Context(), compiled(t, entry))
	if err != nil {
		return err
	}
	requests := []rule.Request{}
	for i := range 12 {
		requests = append(requests, request(i, i%3 != 0))
	}
	got, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: counts}, requests)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(reference(entry, counts, requests), got); diff != "" {
		return fmt.Errorf("result differs (-reference +Rego):\n%s", diff)
	}
	return nil
}
