package vet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Codes of the problems that Hints returns.
const (
	HintNoReason       = "missing-reason"
	HintMessageReads   = "absent-fact-in-message"
	HintDefaultAllow   = "default-allow"
	HintEmptyCondition = "empty-condition"
	HintNoNumber       = "label-is-no-number"
)

// Hints returns the probable mistakes in a module and what it imports, as Read has returned them, by file and in the order of
// their rules.
func Hints(modules map[string]*ast.Module, entry spec.Entry) []Problem {
	var found []Problem
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		if file != File {
			for _, rule := range modules[file].Rules {
				found = append(found, ruleHints(rule)...)
			}
		}
	}
	module := modules[File]
	found = append(found, schemaAnnotations(module)...)
	if entry == spec.EntryAllow && !slices.ContainsFunc(module.Rules, func(rule *ast.Rule) bool { return ruleName(rule) == "reason" }) {
		found = append(found, problemAt(module.Package.Location, HintNoReason,
			`the module has no reason: a pod that it withholds gets the code NotAllowed and no text; add "reason := ..."`))
	}
	for _, rule := range module.Rules {
		found = append(found, ruleHints(rule)...)
	}
	return append(found, otherPods(module)...)
}

// ruleHints returns the probable mistakes in one rule.
func ruleHints(rule *ast.Rule) []Problem {
	var found []Problem
	if rule.Default && ruleName(rule) == "allow" && rule.Head.Value.Equal(ast.BooleanTerm(true)) {
		found = append(found, problemAt(rule.Location, HintDefaultAllow,
			"allow is true by default: a condition that an absent fact leaves undefined permits the pod"))
	}
	if ruleName(rule) == "deny" {
		found = append(found, messageReads(rule)...)
	}
	found = append(found, formats(rule)...)
	found = append(found, timeZones(rule)...)
	ast.WalkExprs(rule, func(expr *ast.Expr) bool {
		if term, ok := expr.Terms.(*ast.Term); ok {
			if object, ok := term.Value.(ast.Object); ok && object.Len() == 0 {
				found = append(found, problemAt(expr.Location, HintEmptyCondition, "the body is an empty object, which is always true"))
			}
		}
		if comparesWithNumber(expr) {
			found = append(found, problemAt(expr.Location, HintNoNumber,
				"a label or annotation is a string: it is greater than every number, and equal to none; convert it by to_number"))
		}
		return false
	})
	return found
}

// messageReads returns the optional facts that only the message of a deny reads: without one, nothing is denied.
func messageReads(rule *ast.Rule) []Problem {
	if rule.Head.Key == nil {
		return nil
	}
	conditions := map[string]bool{}
	parts := []any{rule.Head.Key}
	for _, expr := range rule.Body {
		if expr.IsAssignment() && expr.Operand(0).Equal(rule.Head.Key) {
			parts = append(parts, expr.Operand(1))
			continue
		}
		ast.WalkRefs(expr, func(ref ast.Ref) bool {
			conditions[ref.String()] = true
			return false
		})
	}
	var found []Problem
	for _, part := range parts {
		ast.WalkRefs(part, func(ref ast.Ref) bool {
			if isOptional(ref) && !conditions[ref.String()] {
				found = append(found, problemAt(ref[0].Location, HintMessageReads, fmt.Sprintf(
					"the message reads %s, which can be absent: nothing is denied then", ref)))
			}
			return false
		})
	}
	return found
}

// isOptional reports whether a reference is an entry of a map of labels or annotations.
func isOptional(ref ast.Ref) bool {
	for _, object := range []string{"input.pod.labels", "input.pod.annotations", "input.namespace.labels", "input.node.labels"} {
		if prefix := ast.MustParseRef(object); ref.HasPrefix(prefix) && len(ref) > len(prefix) {
			return true
		}
	}
	return false
}

// comparesWithNumber reports whether an expression compares an entry of a map of labels or annotations with a
// number.
func comparesWithNumber(expr *ast.Expr) bool {
	if !expr.IsCall() || len(expr.Operands()) != 2 || !slices.Contains([]string{"gt", "gte", "lt", "lte", "equal", "neq"}, expr.Operator().String()) {
		return false
	}
	labels, numbers := 0, 0
	for _, operand := range expr.Operands() {
		switch value := operand.Value.(type) {
		case ast.Ref:
			if isOptional(value) {
				labels++
			}
		case ast.Number:
			numbers++
		}
	}
	return labels == 1 && numbers == 1
}

func ruleName(rule *ast.Rule) string { return rule.Head.Ref().String() }

func problemAt(place *ast.Location, code, message string) Problem {
	problem := Problem{Code: code, Message: message}
	problem.locate(place)
	return problem
}
