package policies_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// webhookDocument is the guide for authors of services and of webhook rules.
const webhookDocument = "../docs/webhook-rules.md"

// TestDocumentNamesEveryClass checks that the table of the document has every class of a failure,
// with the effect of the failure policy on it.
func TestDocumentNamesEveryClass(t *testing.T) {
	documented := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| .+ \| (yes|no) \|$`).FindAllStringSubmatch(read(t, webhookDocument), -1) {
		for _, class := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			documented[class[1]] = row[2]
		}
	}
	known := append(constants(t, "../pkg/webhookrule/webhookclient/failure.go", "Class"), constants(t, "../pkg/webhookrule/webhooktask/answer.go", "Class")...)
	if len(known) < 20 {
		t.Fatalf("only %d classes were found: %v", len(known), known)
	}
	requests := map[string]any{}
	for _, class := range known {
		requests[class] = map[string]any{
			"pod":       map[string]any{"labels": map[string]any{}, "skip_rules": []any{}},
			"operation": map[string]any{"type": "update"},
			"task":      map[string]any{"state": "Failed", "class": class, "retry_due": false, "answered": false},
		}
	}
	passed := query(t, "data.podops.rules.webhook.decision(input, input.rule).passed", map[string]any{
		"stage": "PreCheck", "requests": requests,
		"rule": map[string]any{"name": "a", "stage": "PreCheck", "enforcement": "Enforce", "failure_policy": "Ignore"},
	}).([]any)
	for _, class := range known {
		want := "no"
		if slices.Contains(passed, any(class)) {
			want = "yes"
		}
		if documented[class] != want {
			t.Errorf("%s has for class %s, whether Ignore passes: %q; it is %q", webhookDocument, class, documented[class], want)
		}
	}
}

// constants returns the values of the constants in a file whose name has a prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(parsed, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, prefix) || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, value)
		return true
	})
	return found
}
