package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

func TestPrepareRefusesModules(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		want   []engine.Problem
	}{
		"a parse error": {
			source: "package podops.compiled.x\n\ndecision := }\n",
			want: []engine.Problem{
				{Row: 3, Column: 13, Code: "rego_parse_error"},
				{Row: 3, Column: 13, Code: "rego_parse_error"},
			},
		},
		"the network": {
			source: "package podops.compiled.x\n\ndecision := http.send({})\n",
			want:   []engine.Problem{{Row: 3, Column: 13, Code: "rego_type_error"}},
		},
		"the clock": {
			source: "package podops.compiled.x\n\ndecision := time.now_ns()\n",
			want:   []engine.Problem{{Row: 3, Column: 13, Code: "rego_type_error"}},
		},
		"randomness": {
			source: "package podops.compiled.x\n\ndecision := rand.intn(\"x\", 2)\n",
			want:   []engine.Problem{{Row: 3, Column: 13, Code: "rego_type_error"}},
		},
		"what strict mode calls an error": {
			source: "package podops.compiled.x\n\nimport data.podops.lib.quota\n\ndecision := 1 if {\n\ty := 2\n}\n",
			want: []engine.Problem{
				{Row: 3, Column: 1, Code: "rego_compile_error"},
				{Row: 6, Column: 2, Code: "rego_compile_error"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newEngine(t, engine.Options{}).Prepare(t.Context(), compile.Module{Source: tc.source})
			refused := &engine.CompileError{}
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a CompileError", err)
			}
			for i := range refused.Problems {
				if refused.Problems[i].Message == "" {
					t.Errorf("problem %d has no message", i)
				}
				refused.Problems[i].Message = ""
			}
			if diff := cmp.Diff(tc.want, refused.Problems); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

func TestPrepareRefusesToChangeTheLibrary(t *testing.T) {
	for _, source := range []string{
		"package podops.rules.labelcheck\n\ndecision := 1\n",
		"package podops.lib.quota\n\nat_most(_, _) := 100\n",
		"package elsewhere\n\ndecision := 1\n",
	} {
		if _, err := newEngine(t, engine.Options{}).Prepare(t.Context(), compile.Module{Source: source}); err == nil {
			t.Errorf("accepted:\n%s", source)
		}
	}
}

func TestPrepareRemembersPrograms(t *testing.T) {
	e := newEngine(t, engine.Options{Programs: 2})
	prepare := func(name string) *engine.Program {
		program, err := e.Prepare(t.Context(), compiled(t, labelCheck(name)))
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	first := prepare("a")
	if prepare("a") != first {
		t.Error("the same module was compiled again")
	}
	if prepare("b") == first {
		t.Error("another module got the same program")
	}
	prepare("c")
	if prepare("a") == first {
		t.Error("the cache is not bounded")
	}
	result, err := first.Evaluate(t.Context(), first.Stage(), policy.Surroundings{}, []policy.Request{request(0, true)})
	if err != nil || len(result.Verdicts) != 1 {
		t.Errorf("a program that the cache dropped no longer works: %v, %v", result, err)
	}
}

func TestProgramTellsWhatItIs(t *testing.T) {
	rule := labelCheck("ready")
	rule.Stage, rule.Enforcement = appsv1alpha1.StagePostCheck, appsv1alpha1.EnforcementWarn
	program := prepared(t, rule)
	got := []any{program.ID().String(), program.Kind(), program.Stage(), program.Enforcement(), program.NeedsCounts()}
	want := []any{"web/ready", policy.KindLabelCheck, appsv1alpha1.StagePostCheck, appsv1alpha1.EnforcementWarn, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("program differs (-want +got):\n%s", diff)
	}
	if program := prepared(t, budget("10%")); !program.NeedsCounts() || program.VerdictsNeedCounts() {
		t.Error("an enforced availablePolicy needs counts for its room and not for its verdicts")
	}
}

func newEngine(t testing.TB, options engine.Options) *engine.Engine {
	t.Helper()
	// Tests that are not about the timeout must not fail on a slow machine.
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	made, err := engine.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func compiled(t testing.TB, rule appsv1alpha1.TransitionRule) compile.Module {
	t.Helper()
	module, err := compile.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func prepared(t testing.TB, rule appsv1alpha1.TransitionRule) *engine.Program {
	t.Helper()
	program, err := newEngine(t, engine.Options{}).Prepare(t.Context(), compiled(t, rule))
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

// request is a request of pod number i, which is ready in the sense of labelCheck when i is even.
func request(i int, available bool) policy.Request {
	return policy.Request{
		Pod: &policy.PodFact{
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
