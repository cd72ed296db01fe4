package opa_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestPrepareSharesPrograms checks that rules of a kind share a program and keep their own
// literals.
func TestPrepareSharesPrograms(t *testing.T) {
	e := newEngine(t, opa.Options{})
	prepare := func(rule appsv1alpha1.TransitionRule) *opa.Program {
		program, err := e.Prepare(t.Context(), compiled(t, rule))
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	warned := labelCheck("b")
	warned.Enforcement, warned.Stage = appsv1alpha1.EnforcementWarn, appsv1alpha1.StagePostCheck
	first, second := prepare(labelCheck("a")), prepare(warned)
	if !opa.SameProgram(first, second) || first.Source() != second.Source() {
		t.Error("two rules of a kind do not share a program")
	}
	if third := prepare(budget("3")); opa.SameProgram(first, third) || third.Source() == first.Source() {
		t.Error("two kinds share a program")
	}
	prepare(budget("25%"))
	if got := e.Compilations(); got != 2 {
		t.Errorf("%d compilations, want one for each kind", got)
	}
	unready := request(1, true)
	for program, want := range map[*opa.Program]rule.Verdict{
		first:  {Code: rule.CodeLabelMismatch},
		second: {Outcome: rule.Passed, Would: rule.CodeLabelMismatch},
	} {
		unready.Stage = program.Stage()
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{unready})
		if err != nil || result.Verdicts[unready.Key()] != want {
			t.Errorf("%v: got %v, %v, want %v", program.ID(), result.Verdicts, err, want)
		}
	}
}

func TestPrepareCompilesAModuleOnce(t *testing.T) {
	e := newEngine(t, opa.Options{})
	prepare := func(zone string) *opa.Program {
		program, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.labels.zone == \""+zone+"\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	first := prepare("a")
	if !opa.SameProgram(prepare("a"), first) || e.Compilations() != 1 {
		t.Error("the same module was compiled again")
	}
	if opa.SameProgram(prepare("b"), first) {
		t.Error("another module got the same program")
	}
}

func TestPrepareRejectsKindsWithoutALibrary(t *testing.T) {
	for _, module := range []spec.Module{{}, {Kind: "other"}} {
		if _, err := newEngine(t, opa.Options{}).Prepare(t.Context(), module); err == nil {
			t.Errorf("prepared a rule of kind %q", module.Kind)
		}
	}
}

func TestProgramReturnsItsProperties(t *testing.T) {
	entry := labelCheck("ready")
	entry.Stage, entry.Enforcement = appsv1alpha1.StagePostCheck, appsv1alpha1.EnforcementWarn
	program := prepared(t, entry)
	got := []any{program.ID().String(), program.Kind(), program.Stage(), program.Enforcement(), program.NeedsCounts()}
	want := []any{"web/ready", rule.KindLabelCheck, appsv1alpha1.StagePostCheck, appsv1alpha1.EnforcementWarn, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("program differs (-want +got):\n%s", diff)
	}
	if program := prepared(t, budget("10%")); !program.NeedsCounts() || program.VerdictsNeedCounts() {
		t.Error("an enforced availablePolicy needs counts for its capacity and not for its verdicts")
	}
}

func newEngine(t testing.TB, options opa.Options) *opa.Engine {
	t.Helper()
	// Tests that do not depend on the timeout must not fail on a slow machine.
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	made, err := opa.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func compiled(t testing.TB, rule appsv1alpha1.TransitionRule) spec.Module {
	t.Helper()
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// custom returns a rule with a user's module, which must be valid.
func custom(t testing.TB, source string) spec.Module {
	t.Helper()
	return customRule(t, appsv1alpha1.TransitionRule{Name: "mine"}, spec.Custom{Source: source})
}

// customRule returns a rule of kind rego, with the entry point of its module.
func customRule(t testing.TB, rule appsv1alpha1.TransitionRule, custom spec.Custom) spec.Module {
	t.Helper()
	found, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: custom.Source, ParametersSchema: custom.ParametersSchema})
	if err != nil {
		t.Fatal(err)
	}
	custom.Entry = found.Entry
	rule.Rego = &appsv1alpha1.RegoRule{Module: custom.Source}
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, &custom)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func prepared(t testing.TB, rule appsv1alpha1.TransitionRule) *opa.Program {
	t.Helper()
	program, err := newEngine(t, opa.Options{}).Prepare(t.Context(), compiled(t, rule))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func labelCheck(name string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{
		Name: name,
		LabelCheck: &appsv1alpha1.LabelCheck{
			Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"ready": "true"}},
		},
	}
}

func budget(maxUnavailable string) appsv1alpha1.TransitionRule {
	value := intstr.Parse(maxUnavailable)
	return appsv1alpha1.TransitionRule{
		Name:            "budget",
		AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &value},
	}
}

func approval(failures appsv1alpha1.FailurePolicy) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{
		Name: "approval",
		Webhook: &appsv1alpha1.TransitionRuleWebhook{
			ClientConfig:  appsv1alpha1.WebhookClientConfig{URL: "https://example.com"},
			FailurePolicy: failures,
		},
	}
}

// request returns a request of pod number i, which matches the labelCheck rule if i is even.
func request(i int, available bool) rule.Request {
	return rule.Request{
		Pod: &rule.PodFact{
			UID:             types.UID(fmt.Sprintf("uid-%d", i)),
			Namespace:       "shop",
			Name:            fmt.Sprintf("web-%d", i),
			ResourceVersion: "7",
			Version:         "7",
			Labels:          map[string]string{"app": "web", "ready": fmt.Sprint(i%2 == 0)},
			Available:       available,
		},
		Stage: appsv1alpha1.StagePreCheck,
		ID:    "a",
		Type:  "update",
	}
}
