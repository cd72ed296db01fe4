package opa_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

func TestProblemsHaveAHint(t *testing.T) {
	for source, want := range map[string]string{
		`allow if http.send({}).status_code == 200`:                 "undefined function http.send; rules may not call this builtin of OPA: rules reach no network; write a webhook rule",
		`allow if startWith(input.pod.name, "a")`:                   "undefined function startWith; the most similar builtin is startswith",
		`allow if time.now_ns() > 3`:                                "undefined function time.now_ns; rules may not call this builtin of OPA: the engine has to know which rules depend on the time; use input.now (docs/builtins.md)",
		`allow { input.pod.ready }`:                                 "`if` keyword is required before rule body; this is the syntax of OPA v0, which opa fmt --v0-v1 rewrites",
		`violation[{"msg": msg}] { msg := "no" }`:                   "this is the syntax of OPA v0, which opa fmt --v0-v1 rewrites",
		`allow if input.pod.labels.app.kubernetes.io/name == "web"`: `is written in brackets: input.pod.labels["app.kubernetes.io/name"]`,
		`allow if { l := input.pod.labels; l.my-team == "shop" }`:   `is written in brackets: l["my-team"]`,
		`allow if input.parameters.max-age > 3`:                     `is written in brackets: input.parameters["max-age"]`,
		`allow if input.pod.conditions.example.com/warm.status`:     `is written in brackets: input.pod.conditions["example.com/warm`,
		`allow if input.counts.available + "5" > 3`:                 "have: (number, string, ???), want: (number, number, number)",
	} {
		t.Run(source, func(t *testing.T) {
			_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: "package rule\n\n" + source + "\n"})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestASubtractionHasNoHint shows that an unsafe variable is no part of a key where spaces are around the operator.
func TestASubtractionHasNoHint(t *testing.T) {
	_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: "package rule\n\nallow if input.now - since > 3\n"})
	if err == nil || strings.Contains(err.Error(), "brackets") {
		t.Errorf("got %v", err)
	}
}

// TestHintsOfCallsWithoutArguments shows that a call with too few arguments is an error of the compiler, and hints do not read what it lacks.
func TestHintsOfCallsWithoutArguments(t *testing.T) {
	engine := newEngine(t, opa.Options{})
	for _, body := range []string{
		`eq()`, `eq(input.pod.ready)`, `assign(x)`, `internal.member_2("a")`, `"a" in object.keys()`, `object.get(input.pod.labels)`,
		`equal(input.pod.labels.a)`, `count()`, `sprintf()`, `time.clock()`, `time.clock([])`, `plus(1)`,
	} {
		_, err := engine.Inspect(t.Context(), opa.Source{Module: "package rule\n\ndeny contains m if { " + body + "; m := \"x\" }\n"})
		if !errors.As(err, new(*opa.CompileError)) {
			t.Errorf("%s: %v, want a CompileError", body, err)
		}
	}
}
