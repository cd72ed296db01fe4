package evaluation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

const stage = appsv1alpha1.StagePreCheck

// script is a program with predefined verdicts, which records the requests that it evaluates.
type script struct {
	answer  func(rule.Environment, rule.Request) rule.Verdict
	needs   opa.Needs
	counted bool
	err     error

	calls    int
	requests []string
}

func (s *script) NeedsCounts() bool        { return s.counted }
func (s *script) VerdictsNeedCounts() bool { return s.needs.Counts }
func (s *script) Needs() opa.Needs         { return s.needs }
func (s *script) Source() string           { return "" }

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

// answer is what a rule answers from memory and program together.
type answer struct {
	verdicts []rule.Verdict
	capacity *rule.Capacity
}

func recall(t *testing.T, r *Recollection, s *script, env rule.Environment, requests ...rule.Request) answer {
	t.Helper()
	verdicts, capacity, err := r.Evaluate(t.Context(), s, stage, env, requests, 0)
	if err != nil {
		t.Fatal(err)
	}
	return answer{verdicts, capacity}
}

func TestEvaluatesAgainWhen(t *testing.T) {
	counts := rule.Environment{Counts: rule.Counts{Available: 3}}
	space := rule.Environment{Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"alert": "no"}}}
	alert := rule.Environment{Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"alert": "yes"}}}
	paused := rule.Environment{Workloads: map[types.UID]rule.Workload{"d": {Paused: true}}}
	node := &rule.Node{}
	cordoned := rule.Environment{Nodes: map[string]*rule.Node{"n": {Unschedulable: true}}}
	late := request("a", "1")
	late.Attempt = "2"
	other := request("a", "1")
	other.Type = "delete"
	called := request("a", "1")
	called.Task = rule.Task{State: rule.TaskCalling}
	for name, tc := range map[string]struct {
		needs         opa.Needs
		first, second rule.Environment
		again         rule.Request
		verdict       rule.Verdict
		evaluated     bool
	}{
		"nothing has changed":                         {again: request("a", "1")},
		"the pod has":                                 {again: request("a", "2"), evaluated: true},
		"the pod has no version to go by":             {again: request("a", ""), evaluated: true},
		"the operation has another type":              {again: other, evaluated: true},
		"it began to wait again":                      {again: late, evaluated: true},
		"its task has moved on":                       {again: called, evaluated: true},
		"counts changed that do not matter":           {again: request("a", "1"), second: counts},
		"counts changed that matter":                  {again: request("a", "1"), second: counts, needs: opa.Needs{Counts: true}, evaluated: true},
		"counts that matter did not":                  {again: request("a", "1"), first: counts, second: counts, needs: opa.Needs{Counts: true}},
		"labels of the namespace changed that matter": {again: request("a", "1"), first: space, second: alert, needs: opa.Needs{Namespace: true}, evaluated: true},
		"labels of the namespace changed that do not": {again: request("a", "1"), first: space, second: alert},
		"the owner changed that matters":              {again: request("a", "1"), second: paused, needs: opa.Needs{Owner: true}, evaluated: true},
		"the owner changed that does not":             {again: request("a", "1"), second: paused},
		"the node changed that matters":               {again: request("a", "1"), second: cordoned, needs: opa.Needs{Node: true}, evaluated: true},
		"the node changed that does not":              {again: request("a", "1"), second: cordoned},
		"the node is the same": {
			again: request("a", "1"), first: rule.Environment{Nodes: map[string]*rule.Node{"n": node}},
			second: rule.Environment{Nodes: map[string]*rule.Node{"n": node}}, needs: opa.Needs{Node: true},
		},
		"the verdict depends on the time":                   {again: request("a", "1"), needs: opa.Needs{Now: true}, evaluated: true},
		"the rule could not be evaluated":                   {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeEvaluationFailed}, evaluated: true},
		"the rule was too slow":                             {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeTimeout}, evaluated: true},
		"there was no time left for the rule":               {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeNotReached}, evaluated: true},
		"the rule was under quarantine":                     {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodePolicyTooExpensive}, evaluated: true},
		"the rule requires a retry":                         {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeDenied, RetryAfter: time.Second}, evaluated: true},
		"a verdict withholds and wants nothing of the kind": {again: request("a", "1"), verdict: rule.Verdict{Code: rule.CodeDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{answer: func(rule.Environment, rule.Request) rule.Verdict { return tc.verdict }, needs: tc.needs}
			m := &Recollection{}
			recall(t, m, s, tc.first, request("a", "1"))
			s.evaluated()
			recall(t, m, s, tc.second, tc.again)
			if evaluated := len(s.evaluated()) > 0; evaluated != tc.evaluated {
				t.Errorf("evaluated again: %v, want %v", evaluated, tc.evaluated)
			}
		})
	}
}

func TestEvaluatesOnlyTheUncached(t *testing.T) {
	s, m := &script{answer: byVersion}, &Recollection{}
	recall(t, m, s, rule.Environment{}, request("a", "1"), request("b", "1"), request("c", "1"))
	s.evaluated()
	answer := recall(t, m, s, rule.Environment{}, request("d", "1"), request("c", "1"), request("b", "2"))
	if diff := cmp.Diff([]string{"d", "b"}, s.evaluated()); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
	want := []rule.Verdict{{Message: "d@1"}, {Message: "c@1"}, {Message: "b@2"}}
	if diff := cmp.Diff(want, answer.verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if recall(t, m, s, rule.Environment{}, request("a", "1")); len(s.evaluated()) != 1 {
		t.Error("a request that no longer waited was remembered")
	}
}

func TestCapacityIsOfTheCounts(t *testing.T) {
	s, m := &script{answer: byVersion, counted: true}, &Recollection{}
	for _, available := range []int{3, 3, 2, 3} {
		env := rule.Environment{Counts: rule.Counts{Available: available}}
		if capacity := recall(t, m, s, env, request("a", "1")).capacity; capacity.Slots != available {
			t.Errorf("got %d slots, want %d", capacity.Slots, available)
		}
	}
	if diff := cmp.Diff([]string{"a"}, s.evaluated()); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
}

// TestAfterAnErrorItIsEvaluatedAgain shows that only the requests whose evaluation failed are evaluated again.
func TestAfterAnErrorItIsEvaluatedAgain(t *testing.T) {
	s, m := &script{answer: byVersion}, &Recollection{}
	recall(t, m, s, rule.Environment{}, request("a", "1"), request("b", "1"))
	s.err = errors.New("busy")
	if _, _, err := m.Evaluate(t.Context(), s, stage, rule.Environment{}, []rule.Request{request("a", "2"), request("b", "1")}, 0); !errors.Is(err, s.err) {
		t.Errorf("got %v, want %v", err, s.err)
	}
	s.err = nil
	s.evaluated()
	got := recall(t, m, s, rule.Environment{}, request("a", "2"), request("b", "1"))
	if diff := cmp.Diff([]string{"a"}, s.evaluated()); diff != "" {
		t.Errorf("evaluated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]rule.Verdict{{Message: "a@2"}, {Message: "b@1"}}, got.verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestNoRequests(t *testing.T) {
	s, m := &script{answer: byVersion, counted: true}, &Recollection{}
	recall(t, m, s, rule.Environment{}, request("a", "1"))
	s.evaluated()
	if answer := recall(t, m, s, rule.Environment{}); s.calls != 0 || len(answer.verdicts) != 0 || answer.capacity != nil {
		t.Errorf("evaluated %d times, answered %v", s.calls, answer)
	}
	if recall(t, m, s, rule.Environment{}, request("a", "1")); len(s.evaluated()) != 1 {
		t.Error("a request that no longer waited was remembered")
	}
}

// TestEvaluatesLikeTheProgram checks, for any sequence of changes, that the cache returns the
// verdicts of the program.
func TestEvaluatesLikeTheProgram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := opa.Needs{Counts: rapid.Bool().Draw(t, "counts"), Now: rapid.Bool().Draw(t, "fleeting")}
		answer := func(env rule.Environment, request rule.Request) rule.Verdict {
			verdict := byVersion(env, request)
			if needs.Counts {
				verdict.Message += fmt.Sprint(env.Counts.Available)
			}
			if needs.Now {
				verdict.Message += fmt.Sprint(env.Now.UnixNano())
			}
			return verdict
		}
		m, versions := &Recollection{}, map[string]uint64{}
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
			got, capacity, err := m.Evaluate(t.Context(), &script{answer: answer, counted: true, needs: needs}, stage, env, requests, version)
			if err != nil {
				t.Fatal(err)
			}
			if capacity == nil || capacity.Slots != env.Counts.Available {
				t.Fatalf("got capacity %v for %d available pods", capacity, env.Counts.Available)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("verdicts (-program +memory):\n%s", diff)
			}
		}
	})
}

// TestAListOfTheSameVersionIsNotCompared shows that the requests of a list are compared unless it has the
// version of the cached one.
func TestAListOfTheSameVersionIsNotCompared(t *testing.T) {
	s, m := &script{answer: byVersion}, &Recollection{}
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
		if _, _, err := m.Evaluate(t.Context(), s, stage, rule.Environment{}, tc.requests, tc.version); err != nil {
			t.Fatal(err)
		}
		if got := len(s.requests); got != tc.evaluated {
			t.Errorf("call %d: %d requests were evaluated, want %d", i, got, tc.evaluated)
		}
	}
}

// TestARequestThatIsNotReached shows which verdict it keeps.
func TestARequestThatIsNotReached(t *testing.T) {
	denied, passed := rule.Verdict{Code: rule.CodeDenied, Message: "no"}, rule.Verdict{Outcome: rule.Passed}
	unreached, would := rule.Verdict{Code: rule.CodeNotReached}, rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNotReached}
	for name, tc := range map[string]struct {
		last               *rule.Verdict
		wasFallback        bool
		verdict, want      rule.Verdict
		again, wantMissing int
	}{
		"and never was":                    {verdict: unreached, want: unreached, wantMissing: 1},
		"and was denied":                   {last: &denied, verdict: unreached, want: denied, wantMissing: 1},
		"and was denied by the fallback":   {last: &denied, wasFallback: true, verdict: unreached, want: unreached, wantMissing: 1},
		"and passed":                       {last: &passed, verdict: unreached, want: unreached, wantMissing: 1},
		"twice, and was denied":            {last: &denied, verdict: unreached, again: 1, want: denied, wantMissing: 2},
		"by a rule that is not enforced":   {last: &denied, verdict: would, want: would, wantMissing: 1},
		"twice, and never was before that": {verdict: unreached, again: 1, want: unreached, wantMissing: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recollection{}
			if tc.last != nil {
				for _, i := range r.open(scope{}, tc.wasFallback, rule.Environment{}, []rule.Request{request("a", "1")}, 1) {
					r.set(i, *tc.last)
				}
				r.settle()
			}
			for range 1 + tc.again {
				open := r.open(scope{always: true}, false, rule.Environment{}, []rule.Request{request("a", "2")}, 2)
				if len(open) != 1 {
					t.Fatalf("%d requests are evaluated", len(open))
				}
				r.miss(0, tc.verdict)
				r.settle()
			}
			if diff := cmp.Diff(tc.want, r.verdicts[0]); diff != "" || r.notes[0].missed != tc.wantMissing {
				t.Errorf("missed %d times, verdict (-want +got):\n%s", r.notes[0].missed, diff)
			}
			if open := r.open(scope{}, false, rule.Environment{}, []rule.Request{request("a", "2")}, 2); len(open) != 1 {
				t.Error("it is not evaluated in the next round")
			}
		})
	}
}

// TestMessagesAreThoseOfToday adds, changes and removes pods in any way: their messages equal newly made messages.
func TestMessagesAreThoseOfToday(t *testing.T) {
	most := intstr.FromInt32(1)
	entry := appsv1alpha1.TransitionRule{
		LabelCheck:      &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "backend"}}},
		AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &most},
	}
	rapid.Check(t, func(t *rapid.T) {
		r, requests := &Recollection{}, []rule.Request{request("a", "1"), request("b", "1")}
		room := &rule.Capacity{Selected: 3, Desired: 3, MaxUnavailable: 1, MinAvailable: -1}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			requests = slices.Clone(requests)
			i := rapid.IntRange(0, 1).Draw(t, "pod")
			if rapid.Bool().Draw(t, "changes") {
				requests[i] = request(requests[i].Pod.Name, "2")
				requests[i].Pod.Labels = map[string]string{"tier": rapid.SampledFrom([]string{"frontend", "cache"}).Draw(t, "tier")}
			}
			if rapid.Bool().Draw(t, "room changes") {
				room = &rule.Capacity{Selected: 3, Desired: 3, MaxUnavailable: 1, MinAvailable: -1, Available: rapid.IntRange(1, 2).Draw(t, "available")}
			}
			r.align(requests, 0)
			code := rapid.SampledFrom([]rule.Code{rule.CodeNoRoom, rule.CodeLabelMismatch, rule.CodeUndefined}).Draw(t, "code")
			got, want := r.explain(i, code, entry, requests[i], room), rule.Explain(code, entry, requests[i], room)
			if got != want {
				t.Fatalf("of %s: got %q, want %q", requests[i].Pod.Name, got, want)
			}
		}
	})
}

// fullRecollection is that of a rule that denied pods with a text each.
func fullRecollection(facts []*rule.PodFact, text string) *Recollection {
	remembered := &Recollection{}
	var requests []rule.Request
	for i, fact := range facts {
		requests = append(requests, rule.Request{
			Pod: fact, Stage: stage, ID: strings.Repeat("i", 62), Type: strings.Repeat("t", 63),
			Attempt: fmt.Sprint(1_700_000_000_000_000_000 + i), Task: rule.Task{State: rule.TaskFailed, Message: strings.Clone(text)},
		})
	}
	for _, i := range remembered.open(scope{}, false, rule.Environment{}, requests, 1) {
		remembered.set(i, rule.Verdict{Code: rule.CodeDenied, Message: strings.Clone(text), Details: strings.Clone(text)})
		remembered.explain(i, rule.CodeLabelMismatch, appsv1alpha1.TransitionRule{}, requests[i], nil)
	}
	return remembered
}

// TestRecollectionsCountTheirHeap compares with the bytes that the values keep alive on the heap.
func TestRecollectionsCountTheirHeap(t *testing.T) {
	for _, pods := range []int{0, 1, 2, 7, 8, 15, 1000, 1800} {
		for _, text := range []string{"", strings.Repeat("x", rule.MaxMessageBytes)} {
			var facts []*rule.PodFact
			for i := range pods {
				facts = append(facts, &rule.PodFact{UID: types.UID(fmt.Sprintf("%036d", i)), Name: fmt.Sprint("web-", i)})
			}
			all := make([]*Recollection, 1+2000/(pods+1))
			before := heapInUse()
			for i := range all {
				all[i] = fullRecollection(facts, text)
			}
			got, heap := all[0].bytes(), (heapInUse()-before)/int64(len(all))
			if got < heap*9/10 || got > 2*heap+2*recollectionBytes {
				t.Errorf("%d pods with texts of %d bytes: counts %d bytes, takes %d", pods, len(text), got, heap)
			}
			runtime.KeepAlive(facts)
			runtime.KeepAlive(all)
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
