package moduletest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/engine/opa/moduletest"
)

const module = `package rule.approved

allow if input.pod.labels.approved == "true"

allow if input.operation.type == "restart"
`

const tests = `package rule.approved_test

import data.rule.approved

test_approved if approved.allow with input as {"pod": {"labels": {"approved": "true"}}}

test_wrong if approved.allow with input as {"pod": {"labels": {}}}

todo_test_later if false
`

func TestRunReturnsResultsAndCoverage(t *testing.T) {
	report, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": tests}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, result := range report.Results {
		state := "passed"
		if result.Failed {
			state = "failed"
		} else if result.Skipped {
			state = "skipped"
		}
		got = append(got, result.Name+" "+state)
	}
	want := []string{"rule.approved_test.test_approved passed", "rule.approved_test.test_wrong failed", "rule.approved_test.todo_test_later skipped"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(report.Coverage.Files) != 1 || report.Coverage.Files[0].File != "a.rego" || report.Coverage.Percent <= 0 {
		t.Errorf("got coverage %+v", report.Coverage)
	}
}

func TestRunHasTheBuiltinsOfRulesOnly(t *testing.T) {
	text := "package x_test\n\ntest_it if http.send({\"url\": \"http://example.com\", \"method\": \"get\"})\n"
	_, err := moduletest.Run(t.Context(), map[string]string{"x_test.rego": text}, nil, "")
	if err == nil || !strings.Contains(err.Error(), "undefined function http.send") {
		t.Errorf("got %v", err)
	}
}

func TestRunFilters(t *testing.T) {
	report, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": tests}, nil, "test_approved$")
	if err != nil || len(report.Results) != 1 || report.Results[0].Failed {
		t.Errorf("got %+v, %v", report.Results, err)
	}
}

// TestFailures shows why a test failed: the row that is not true, or the error of a builtin, which withholds a pod.
func TestFailures(t *testing.T) {
	const failing = `package rule.approved_test

import data.rule.approved

test_row if {
	value := 1
	value == 2
}

test_module if approved.allow with input as {"pod": {"labels": {}}}

test_builtin if not to_number("500m")

test_data if data.lists.teams == ["a"]

test_index if input.kind == "Pod"
`
	report, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": failing}, map[string]any{"lists": map[string]any{"teams": []any{"a"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, result := range report.Results {
		got = append(got, result.Message)
	}
	want := []string{
		"a_test.rego:7 is not true: value == 2",
		`a_test.rego:10 is not true: approved.allow with input as {"pod": {"labels": {}}}`,
		`a_test.rego:12: eval_builtin_error: to_number: strconv.ParseFloat: parsing "500m": invalid syntax`,
		"",
		"a_test.rego:16: the test is not true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTwoModulesOfOnePackage(t *testing.T) {
	_, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "b.rego": module, "a_test.rego": tests}, nil, "")
	if err == nil || !strings.Contains(err.Error(), "a.rego and b.rego have the same package, rule.approved: a rule has one module") {
		t.Errorf("got %v", err)
	}
}

// TestInputs shows which inputs are kept: also one that no rule matches, and one that is changed below.
func TestInputs(t *testing.T) {
	const given = `package rule.approved_test

import data.rule.approved

_pod(labels) := {"pod": {"labels": labels}}

test_b if {
	not approved.allow with input as _pod({"approved": "no"})
	approved.allow with input as _pod({"approved": "no"}) with input.operation.type as "restart"
}

test_a if {
	_helper with input as _pod({"approved": "true"})
}

_helper if approved.allow
`
	report, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": given}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, input := range report.Inputs {
		got = append(got, input.Test+" "+input.File+" "+string(input.Document))
	}
	want := []string{
		`rule.approved_test.test_a a.rego {"pod":{"labels":{"approved":"true"}}}`,
		`rule.approved_test.test_b a.rego {"pod":{"labels":{"approved":"no"}}}`,
		`rule.approved_test.test_b a.rego {"operation":{"type":"restart"},"pod":{"labels":{"approved":"no"}}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
