package opa_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// patient returns options for tests that do not depend on time: a slow machine must not fail them.
func patient() opa.Options {
	return opa.Options{CustomTimeout: time.Minute, RoundBudget: time.Hour}
}

// verdictFor evaluates a custom rule for one request.
func verdictFor(t testing.TB, options opa.Options, module spec.Module, env rule.Environment, request rule.Request) rule.Verdict {
	t.Helper()
	program, err := newEngine(t, options).Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	request.Stage = program.Stage()
	result, err := program.Evaluate(t.Context(), program.Stage(), env, []rule.Request{request})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Verdicts) != 1 || result.Capacity != nil {
		t.Errorf("got %v, want one verdict and no capacity", result)
	}
	return result.Verdicts[request.Key()]
}

// silent is the message for a module that gives no reason.
func silent(why string) rule.Verdict {
	return rule.Verdict{Code: rule.CodeNotAllowed, Message: "allow is not true for this pod, and " + why}
}

// TestCustomVerdicts evaluates modules for the pod web-0, which has the labels app and ready and is
// available.
func TestCustomVerdicts(t *testing.T) {
	long := strings.Repeat("é", 400)
	for name, tc := range map[string]struct {
		body string
		want rule.Verdict
	}{
		"allow is true":      {`allow if input.pod.labels.ready == "true"`, rule.Verdict{Outcome: rule.Passed}},
		"allow is false":     {`allow := input.pod.permitted`, silent("the module has no reason")},
		"allow is undefined": {`allow if input.pod.labels.other`, silent("the module has no reason")},
		"allow by default":   {`default allow := true`, rule.Verdict{Outcome: rule.Passed}},
		"allow is a text":    {`allow := input.parameters.x if input.pod.ready`, silent("the module has no reason")},
		"a reason that reads what is not there": {
			"allow if false\nreason := sprintf(\"%s of %s\", [input.pod.labels.app, input.pod.labels.weight])",
			silent("reason has no value: the input has no input.pod.labels.weight (row 4)"),
		},
		"a reason by a key that is no word": {
			"allow if false\nreason := x if {\n\tx := input.pod.labels[\"example.com/weight\"]\n}",
			silent(`reason has no value: the input has no input.pod.labels["example.com/weight"] (row 5)`),
		},
		"a reason through another rule": {
			"allow if false\nreason := weight\nweight := input.pod.labels.weight",
			silent("reason has no value: does it read a label that the pod lacks?"),
		},
		"a reason by a parameter": {
			"allow if false\nreason := input.parameters.text", silent("reason has no value: the input has no input.parameters.text (row 4)"),
		},
		"a reason":                    {"allow if false\nreason := sprintf(\"%s waits\", [input.pod.name])", rule.Verdict{Code: rule.CodeNotAllowed, Message: "web-0 waits"}},
		"a reason for what passes":    {"allow if true\nreason := \"?\"", rule.Verdict{Outcome: rule.Passed}},
		"a long reason":               {"allow if false\nreason := \"" + long + "\"", rule.Verdict{Code: rule.CodeNotAllowed, Message: long[:508] + "..."}},
		"nothing is denied":           {`deny contains "x" if input.pod.permitted`, rule.Verdict{Outcome: rule.Passed}},
		"something is denied":         {`deny contains "x" if input.pod.available`, rule.Verdict{Code: rule.CodeDenied, Message: "x"}},
		"characters of terminals":     {`deny contains "a\u001b[2J\u202eb"`, rule.Verdict{Code: rule.CodeDenied, Message: `a\x1b[2J\u202eb`}},
		"two denials":                 {"deny contains \"b\"\ndeny contains \"a\"", rule.Verdict{Code: rule.CodeDenied, Message: "a; b"}},
		"a conflict":                  {"allow := x if some x in [true, false]", rule.Verdict{Code: rule.CodeEvaluationFailed, Message: "3:1: eval_conflict_error: rule data.rule.allow produced conflicting values: true at row 3 false at row 3"}},
		"an error of a builtin":       {"deny contains \"x\" if 1 / count(input.pods) > 1", rule.Verdict{Code: rule.CodeEvaluationFailed, Message: "3:22: eval_builtin_error: div: divide by zero"}},
		"details that are an object":  {`deny contains {"message": "m", "details": {"b": [1, null], "a": {2}}}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", Details: `{"a":[2],"b":[1,null]}`}},
		"details that are not":        {`deny contains {"message": "m", "details": 7}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", Details: `{"value":7}`}},
		"details that are too large":  {`deny contains {"message": "m", "details": {"x": "` + long + `"}}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", Details: `{"omitted":"more than 512 bytes"}`}},
		"a delay":                     {`deny contains {"message": "m", "retry_after_seconds": 90.5}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", RetryAfter: 90500 * time.Millisecond}},
		"a delay that is too short":   {`deny contains {"message": "m", "retry_after_seconds": 0.001}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", RetryAfter: time.Second}},
		"a delay beyond all measure":  {`deny contains {"message": "m", "retry_after_seconds": 1e99}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", RetryAfter: 24 * time.Hour}},
		"members of a set in a set":   {`deny contains {"message": "m", "details": {{"k": {1, 2}}}}`, rule.Verdict{Code: rule.CodeDenied, Message: "m", Details: `{"value":[{"k":[1,2]}]}`}},
		"a message without any bytes": {`deny contains ""`, rule.Verdict{Code: rule.CodeDenied}},
	} {
		t.Run(name, func(t *testing.T) {
			got := verdictFor(t, patient(), custom(t, "package rule\n\n"+tc.body+"\n"), rule.Environment{}, request(0, true))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCustomAnswersOfAWrongType has values whose type the compiler cannot check.
func TestCustomAnswersOfAWrongType(t *testing.T) {
	for name, body := range map[string]string{
		"allow":                 `allow := object.get(input.parameters, "answer", 1)`,
		"reason":                "allow if false\nreason := object.get(input.parameters, \"reason\", 1)",
		"a denial":              `deny contains object.get(input.parameters, "answer", 1)`,
		"one of two":            "deny contains \"fine\"\ndeny contains 1",
		"a delay":               `deny contains {"message": "m", "retry_after_seconds": "1"}`,
		"a field of no meaning": `deny contains {"message": "m", "retry_after": 1}`,
	} {
		t.Run(name, func(t *testing.T) {
			got := verdictFor(t, patient(), custom(t, "package rule\n\n"+body+"\n"), rule.Environment{}, request(0, true))
			if got.Outcome != rule.Withheld || got.Code != rule.CodeWrongType || got.Message == "" {
				t.Errorf("got %+v, want WrongType with a message", got)
			}
		})
	}
}

// TestCustomRulesAreRulesLikeOthers has a module that fails for every pod, in rules that do not
// apply to the pod or are not enforced.
func TestCustomRulesAreRulesLikeOthers(t *testing.T) {
	const failing = "package rule\n\nallow if 1 / count(input.pods) > 1\n"
	const denying = "package rule\n\nallow if input.pod.permitted\n\nreason := \"no\"\n"
	skipping := request(0, true)
	skipping.Pod.SkipRules = []string{"mine"}
	passed := rule.Verdict{Outcome: rule.Passed}
	for name, tc := range map[string]struct {
		rule    appsv1alpha1.TransitionRule
		source  string
		request rule.Request
		want    rule.Verdict
	}{
		"the pod skips it":        {source: failing, request: skipping, want: passed},
		"other types":             {rule: appsv1alpha1.TransitionRule{Conditions: []string{"delete"}}, source: failing, request: request(0, true), want: passed},
		"this type":               {rule: appsv1alpha1.TransitionRule{Conditions: []string{"update"}}, source: denying, request: request(0, true), want: rule.Verdict{Code: rule.CodeNotAllowed, Message: "no"}},
		"other pods":              {rule: appsv1alpha1.TransitionRule{Filter: filterOn("app", "db")}, source: failing, request: request(0, true), want: passed},
		"these pods":              {rule: appsv1alpha1.TransitionRule{Filter: filterOn("app", "web")}, source: denying, request: request(0, true), want: rule.Verdict{Code: rule.CodeNotAllowed, Message: "no"}},
		"it warns":                {rule: appsv1alpha1.TransitionRule{Enforcement: appsv1alpha1.EnforcementWarn}, source: denying, request: request(0, true), want: rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNotAllowed, Message: "no"}},
		"it is tried":             {rule: appsv1alpha1.TransitionRule{Enforcement: appsv1alpha1.EnforcementDryRun}, source: denying, request: request(0, true), want: rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNotAllowed, Message: "no"}},
		"it is tried, and passes": {rule: appsv1alpha1.TransitionRule{Enforcement: appsv1alpha1.EnforcementDryRun}, source: "package rule\n\nallow if true\n", request: request(0, true), want: passed},
		"it warns, and is broken": {
			rule: appsv1alpha1.TransitionRule{Enforcement: appsv1alpha1.EnforcementWarn}, source: failing, request: request(0, true),
			want: rule.Verdict{
				Outcome: rule.Passed, Would: rule.CodeEvaluationFailed,
				Message: "3:10: eval_builtin_error: div: divide by zero",
			},
		},
		"after the operation": {rule: appsv1alpha1.TransitionRule{Stage: appsv1alpha1.StagePostCheck}, source: "package rule\n\nallow if input.stage == \"PostCheck\"\n", request: request(0, true), want: passed},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.Name = "mine"
			module := customRule(t, tc.rule, spec.Custom{Source: tc.source})
			if diff := cmp.Diff(tc.want, verdictFor(t, patient(), module, rule.Environment{}, tc.request)); diff != "" {
				t.Errorf("verdict differs (-want +got):\n%s", diff)
			}
		})
	}
}

func filterOn(key, value string) *appsv1alpha1.TransitionRuleFilter {
	rule := labelCheck("x")
	rule.LabelCheck.Requires.MatchLabels = map[string]string{key: value}
	return &appsv1alpha1.TransitionRuleFilter{LabelSelector: rule.LabelCheck.Requires}
}

// TestCustomRulesSeeTheFacts has expressions that are true for exactly these facts.
func TestCustomRulesSeeTheFacts(t *testing.T) {
	one, two, three := request(0, true), request(1, true), request(2, true)
	one.Since, one.Cause = time.Unix(0, 1700000000123456789), rule.CauseRollout
	one.Requester = rule.Requester{Method: "Eviction", Actor: "Evictor", User: "jane", Groups: "ops\nsre", GroupsTruncated: true}
	*one.Pod = rule.PodFact{
		UID: "uid-0", Namespace: "shop", Name: "web-0", ResourceVersion: "7", Version: "7",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"shard": "a"},
		Owner: rule.Owner{Kind: "Deployment", Name: "web", UID: "o"}, Node: "n1",
		Created: time.Unix(0, 11), Ready: true, Available: true, AvailableSince: time.Unix(0, 12), Permitted: true,
		SkipRules: []string{"other"},
	}
	two.Pod.AvailableSince = time.Unix(0, 13)
	env := rule.Environment{
		Now:       time.Unix(0, 1700000000123456790),
		Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"alert": "red"}},
		Counts:    rule.Counts{Selected: 4, Desired: 3, Available: 2, Reserved: 1},
		Pods:      []*rule.PodFact{one.Pod, two.Pod, three.Pod},
		Committed: map[types.UID]bool{three.Pod.UID: true},
		Permits:   []rule.Permit{{Pod: "web-9", At: time.Unix(0, 5)}, {Pod: "web-8", At: time.Unix(0, 6)}},
	}
	for _, fact := range []string{
		`input.stage == "PreCheck"`,
		`input.now == 1700000000123456790`,
		`input.operation == {"id": "a", "type": "update", "cause": "Rollout", "since": 1700000000123456789, "request": {"method": "Eviction", "actor": "Evictor", "user": "jane", "groups": ["ops", "sre"], "groups_truncated": true}}`,
		`input.parameters == {"limit": 3}`,
		`input.pod.name == "web-0"; input.pod.namespace == "shop"; input.pod.uid == "uid-0"`,
		`input.pod.labels == {"app": "web"}; input.pod.annotations == {"shard": "a"}`,
		`input.pod.owner == {"kind": "Deployment", "name": "web", "uid": "o"}; input.pod.node == "n1"`,
		`input.pod.created == 11; input.pod.ready; input.pod.available; input.pod.available_since == 12`,
		`input.pod.permitted; input.pod.skip_rules == ["other"]`,
		`[p.name | some p in input.pods] == ["web-1", "web-2"]`,
		`p := input.pods[0]; p.available; not p.permitted; p.available_since == 13`,
		`p := input.pods[1]; not p.available; p.permitted; p.available_since == 0; p.labels.app == "web"`,
		`input.namespace == {"name": "shop", "labels": {"alert": "red"}}`,
		`input.counts == {"selected": 4, "desired": 3, "available": 2, "reserved": 1}`,
		`input.permits == [{"pod": "web-9", "at": 5}, {"pod": "web-8", "at": 6}]`,
		`input.rule.name == "mine"; input.rule.stage == "PreCheck"; input.rule.enforcement == "Enforce"`,
	} {
		module := customRule(t, appsv1alpha1.TransitionRule{Name: "mine"}, spec.Custom{
			Source: "package rule\n\nallow if {\n\t" + strings.ReplaceAll(fact, "; ", "\n\t") + "\n}\n", Parameters: []byte(`{"limit": 3}`),
		})
		if got := verdictFor(t, patient(), module, env, one); got.Outcome != rule.Passed {
			t.Errorf("%s: %+v", fact, got)
		}
	}
}

// TestCustomRulesShareTheirModule has rules with different parameters, which share a program and
// keep their own parameters.
func TestCustomRulesShareTheirModule(t *testing.T) {
	const source = "package rule\n\nallow if count(input.pod.name) < input.parameters.limit\n"
	e := newEngine(t, patient())
	prepared := []*opa.Program{}
	for i, want := range map[int]rule.Outcome{3: rule.Withheld, 30: rule.Passed} {
		module := customRule(t, appsv1alpha1.TransitionRule{Name: fmt.Sprint("r", i)}, spec.Custom{
			Source: source, Parameters: fmt.Appendf(nil, `{"limit": %d}`, i),
		})
		program, err := e.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		prepared = append(prepared, program)
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{request(0, true)})
		if err != nil || result.Verdicts["uid-0/PreCheck/a"].Outcome != want {
			t.Errorf("limit %d: got %v, %v, want outcome %v", i, result, err, want)
		}
	}
	if !opa.SameProgram(prepared[0], prepared[1]) || e.Compilations() != 1 {
		t.Errorf("%d compilations, want one", e.Compilations())
	}
}

func TestPrepareRejectsAnotherEntryPoint(t *testing.T) {
	module := custom(t, "package rule\n\ndeny contains \"x\"\n")
	module.Custom.Entry = spec.EntryAllow
	if _, err := newEngine(t, opa.Options{}).Prepare(t.Context(), module); err == nil {
		t.Error("deny was evaluated as allow")
	}
}

// slowModule takes minutes.
const slowModule = `package rule

allow if input.pod.labels.ready == "true"

allow if {
	some a in numbers.range(1, 5000)
	some b in numbers.range(1, 5000)
	some c in numbers.range(1, 5000)
	a + b + c < 0
}
`

// TestCustomTimeout has a pod on which the module loops: it times out, and the other pods get their
// verdicts.
func TestCustomTimeout(t *testing.T) {
	program, err := newEngine(t, opa.Options{CustomTimeout: 200 * time.Millisecond, RoundBudget: time.Minute}).
		Prepare(t.Context(), custom(t, slowModule))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{},
		[]rule.Request{request(1, true), request(0, true)})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	want := map[string]rule.Verdict{
		"uid-0/PreCheck/a": {Outcome: rule.Passed},
		"uid-1/PreCheck/a": {Code: rule.CodeTimeout, Message: "the module gave no answer: it used up its time of 200ms"},
	}
	if diff := cmp.Diff(want, result.Verdicts); diff != "" {
		t.Errorf("verdicts differ (-want +got):\n%s", diff)
	}
	if took < 200*time.Millisecond || took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestCustomRoundBudget checks that the remaining requests get NotReached when the time of a round
// is over.
func TestCustomRoundBudget(t *testing.T) {
	program, err := newEngine(t, opa.Options{CustomTimeout: 30 * time.Millisecond, RoundBudget: time.Millisecond}).
		Prepare(t.Context(), custom(t, slowModule))
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{},
		[]rule.Request{request(1, true), request(0, true), request(2, true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"uid-0/PreCheck/a", "uid-2/PreCheck/a"} {
		if got := result.Verdicts[key]; got.Code != rule.CodeNotReached || got.Outcome != rule.Withheld {
			t.Errorf("%s: got %+v, want it withheld and not reached", key, got)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	result, err = program.Evaluate(over, program.Stage(), rule.Environment{}, []rule.Request{request(0, true)})
	if got := result.Verdicts["uid-0/PreCheck/a"]; err != nil || got.Code != rule.CodeNotReached {
		t.Errorf("under a context that is over: got %+v, %v", got, err)
	}
}
