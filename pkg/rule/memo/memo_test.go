package memo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/memo"
)

const stage = appsv1alpha1.StagePreCheck

// script is a program with predefined verdicts, which records the requests that it evaluates.
type script struct {
	answer  func(rule.Environment, rule.Request) rule.Verdict
	counted bool
	err     error

	calls    int
	requests []string
}

func (s *script) NeedsCounts() bool { return s.counted }

func (s *script) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	s.calls++
	if s.err != nil {
		return rule.Result{}, s.err
	}
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	for _, request := range requests {
		s.requests = append(s.requests, request.Pod.Name)
		result.Verdicts[request.Key()] = s.answer(env, request)
	}
	if s.counted {
		result.Capacity = &rule.Capacity{Slots: env.Counts.Available}
	}
	return result, nil
}

// evaluated returns and clears the recorded requests.
func (s *script) evaluated() []string {
	requests := s.requests
	s.requests, s.calls = nil, 0
	return requests
}

// byVersion returns a verdict with the version of the pod.
func byVersion(_ rule.Environment, request rule.Request) rule.Verdict {
	return rule.Verdict{Message: request.Pod.Name + "@" + request.Pod.Version}
}

func request(name, version string) rule.Request {
	return rule.Request{
		Pod:   &rule.PodFact{UID: types.UID("uid-" + name), Name: name, Version: version},
		Stage: stage, ID: "roll", Type: "update", Attempt: "1",
	}
}

func evaluate(t *testing.T, m *memo.Memo, s *script, scope memo.Scope, env rule.Environment, requests ...rule.Request) memo.Answer {
	t.Helper()
	answer, err := m.Evaluate(t.Context(), s, scope, stage, env, requests, 0)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEvaluatesAgainWhen(t *testing.T) {
	counts := rule.Environment{Counts: rule.Counts{Available: 3}}
	space := rule.Environment{Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"alert": "no"}}}
	alert := rule.Environment{Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"alert": "yes"}}}
	late := request("a", "1")
	late.Attempt = "2"
	other := request("a", "1")
	other.Type = "delete"
	called := request("a", "1")
	called.Task = rule.Task{State: rule.TaskCalling}
	for name, tc := range map[string]struct {
		scope         memo.Scope
		first, second rule.Environment
		again         rule.Request
		verdict       rule.Verdict
		evaluated     bool
	}{
		"nothing has changed":                               {again: request("a", "1")},
		"the pod has":                                       {again: request("a", "2"), evaluated: true},
		"the pod has no version to go by":                   {again: request("a", ""), evaluated: true},
		"the operation has another type":                    {again: other, evaluated: true},
		"it began to wait again":                            {again: late, evaluated: true},
		"its task has moved on":                             {again: called, evaluated: true},
		"counts changed that do not matter":                 {again: request("a", "1"), second: counts},
		"counts changed that matter":                        {again: request("a", "1"), second: counts, scope: memo.Scope{Counts: true}, evaluated: true},
		"counts that matter did not":                        {again: request("a", "1"), first: counts, second: counts, scope: memo.Scope{Counts: true}},
		"labels of the namespace changed that matter":       {again: request("a", "1"), first: space, second: alert, scope: memo.Scope{Namespace: true}, evaluated: true},
		"labels of the namespace changed that do not":       {again: request("a", "1"), first: space, second: alert},
		"the verdict depends on the time":                   {again: request("a", "1"), scope: memo.Scope{Uncacheable: true}, evaluated: true},
		"the rule could not be evaluated":                   {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeEvaluationFailed}, evaluated: true},
		"the rule was too slow":                             {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeTimeout}, evaluated: true},
		"there was no time left for the rule":               {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeNotReached}, evaluated: true},
		"the rule was under quarantine":                     {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodePolicyTooExpensive}, evaluated: true},
		"the rule requires a retry":                         {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeDenied, RetryAfter: time.Second}, evaluated: true},
		"a verdict withholds and wants nothing of the kind": {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answer: func(rule.Environment, rule.Request) rule.Verdict { return tc.verdict }}
			m := memo.New()
			evaluate(t, m, s, tc.scope, tc.first, request("a", "1"))
			s.evaluated()
			evaluate(t, m, s, tc.scope, tc.second, tc.again)
			if evaluated := len(s.evaluated()) > 0; evaluated != tc.evaluated {
				t.Errorf("evaluated again: %v, want %v", evaluated, tc.evaluated)
			}
		})
	}
}

func TestEvaluatesOnlyTheUncached(t *testing.T) {
	s, m := &script{answer: byVersion}, memo.New()
	evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1"), request("b", "1"), request("c", "1"))
	s.evaluated()
	answer := evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("d", "1"), request("c", "1"), request("b", "2"))
	if diff := cmp.Diff([]string{"d", "b"}, s.evaluated()); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
	want := []rule.Verdict{{Message: "d@1"}, {Message: "c@1"}, {Message: "b@2"}}
	if diff := cmp.Diff(want, answer.Verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1")); len(s.evaluated()) != 1 {
		t.Error("a request that no longer waited was remembered")
	}
}

func TestCapacityIsEvaluatedWhenTheCountsHaveChanged(t *testing.T) {
	s, m := &script{answer: byVersion, counted: true}, memo.New()
	for _, available := range []int{3, 3, 2, 3} {
		env := rule.Environment{Counts: rule.Counts{Available: available}}
		if capacity := evaluate(t, m, s, memo.Scope{}, env, request("a", "1")).Capacity; capacity.Slots != available {
			t.Errorf("got %d slots, want %d", capacity.Slots, available)
		}
	}
	if s.calls != 3 {
		t.Errorf("evaluated %d times, want 3: the second time the counts are those of the first", s.calls)
	}
	if diff := cmp.Diff([]string{"a"}, s.evaluated()); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
}

func TestAnErrorChangesNothing(t *testing.T) {
	s, m := &script{answer: byVersion}, memo.New()
	evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1"))
	s.evaluated()
	s.err = errors.New("busy")
	if _, err := m.Evaluate(t.Context(), s, memo.Scope{}, stage, rule.Environment{}, []rule.Request{request("a", "2")}, 0); !errors.Is(err, s.err) {
		t.Errorf("got %v, want %v", err, s.err)
	}
	s.err = nil
	s.evaluated()
	if evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1")); s.calls != 0 {
		t.Error("what was remembered before the error is gone")
	}
}

func TestNoRequests(t *testing.T) {
	s, m := &script{answer: byVersion, counted: true}, memo.New()
	evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1"))
	s.evaluated()
	if answer := evaluate(t, m, s, memo.Scope{}, rule.Environment{}); s.calls != 0 || len(answer.Verdicts) != 0 || answer.Capacity != nil {
		t.Errorf("evaluated %d times, answered %v", s.calls, answer)
	}
	if evaluate(t, m, s, memo.Scope{}, rule.Environment{}, request("a", "1")); len(s.evaluated()) != 1 {
		t.Error("a request that no longer waited was remembered")
	}
}

// TestEvaluatesLikeTheProgram checks, for any sequence of changes, that the cache returns the
// verdicts of the program.
func TestEvaluatesLikeTheProgram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scope := memo.Scope{Counts: rapid.Bool().Draw(t, "counts"), Uncacheable: rapid.Bool().Draw(t, "fleeting")}
		answer := func(env rule.Environment, request rule.Request) rule.Verdict {
			verdict := byVersion(env, request)
			if scope.Counts {
				verdict.Message += fmt.Sprint(env.Counts.Available)
			}
			if scope.Uncacheable {
				verdict.Message += fmt.Sprint(env.Now.UnixNano())
			}
			return verdict
		}
		m, versions := memo.New(), map[string]uint64{}
		for round := range rapid.IntRange(1, 8).Draw(t, "rounds") {
			env := rule.Environment{
				Now:    time.Unix(0, int64(round)),
				Counts: rule.Counts{Available: rapid.IntRange(0, 1).Draw(t, "available")},
			}
			var requests []rule.Request
			var want []rule.Verdict
			list := ""
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID[string]).Draw(t, "pods") {
				one := request(name, rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"))
				requests, want = append(requests, one), append(want, answer(env, one))
				list += name + one.Pod.Version + " "
			}
			if _, known := versions[list]; !known {
				versions[list] = uint64(len(versions) + 1)
			}
			version := rapid.SampledFrom([]uint64{0, versions[list]}).Draw(t, "version of the list")
			got, err := m.Evaluate(t.Context(), &script{answer: answer, counted: true}, scope, stage, env, requests, version)
			if err != nil {
				t.Fatal(err)
			}
			if got.Capacity == nil || got.Capacity.Slots != env.Counts.Available {
				t.Fatalf("got capacity %v for %d available pods", got.Capacity, env.Counts.Available)
			}
			if diff := cmp.Diff(want, got.Verdicts); diff != "" {
				t.Fatalf("verdicts (-program +memory):\n%s", diff)
			}
		}
	})
}

// TestAListOfTheSameVersionIsNotCompared shows that the requests of a list are compared unless it has the
// version of the cached one.
func TestAListOfTheSameVersionIsNotCompared(t *testing.T) {
	s, m := &script{answer: byVersion}, memo.New()
	first, second := []rule.Request{request("a", "1")}, []rule.Request{request("a", "2")}
	for i, tc := range []struct {
		requests  []rule.Request
		version   uint64
		evaluated int
	}{
		{first, 1, 1},
		{second, 1, 0}, // an Index never does so: it shows that the requests are not compared
		{second, 2, 1},
		{second, 3, 0},
		{first, 0, 1},
		{second, 0, 1},
	} {
		s.requests = nil
		if _, err := m.Evaluate(t.Context(), s, memo.Scope{}, stage, rule.Environment{}, tc.requests, tc.version); err != nil {
			t.Fatal(err)
		}
		if got := len(s.requests); got != tc.evaluated {
			t.Errorf("call %d: %d requests were evaluated, want %d", i, got, tc.evaluated)
		}
	}
}
