package moduletest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/opa/moduletest"
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
	results, coverage, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": tests}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, result := range results {
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
	if len(coverage.Files) != 1 || coverage.Files[0].File != "a.rego" || coverage.Percent <= 0 {
		t.Errorf("got coverage %+v", coverage)
	}
}

func TestRunHasTheBuiltinsOfRulesOnly(t *testing.T) {
	text := "package x_test\n\ntest_it if http.send({\"url\": \"http://example.com\", \"method\": \"get\"})\n"
	_, _, err := moduletest.Run(t.Context(), map[string]string{"x_test.rego": text}, "")
	if err == nil || !strings.Contains(err.Error(), "undefined function http.send") {
		t.Errorf("got %v", err)
	}
}

func TestRunFilters(t *testing.T) {
	results, _, err := moduletest.Run(t.Context(), map[string]string{"a.rego": module, "a_test.rego": tests}, "test_approved$")
	if err != nil || len(results) != 1 || results[0].Failed {
		t.Errorf("got %+v, %v", results, err)
	}
}
