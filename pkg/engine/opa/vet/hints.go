package vet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
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
			found = append(found, rulesHints(modules[file])...)
		}
	}
	module := modules[File]
	found = append(found, schemaAnnotations(module)...)
	if entry == spec.EntryAllow && !slices.ContainsFunc(module.Rules, func(rule *ast.Rule) bool { return ruleName(rule) == "reason" }) {
		found = append(found, problemAt(module.Package.Location, HintNoReason,
			`the module has no reason: a pod that it withholds gets the code NotAllowed and no text; add "reason := ..."`))
	}
	found = append(found, rulesHints(module)...)
	return append(found, otherPods(module)...)
}

// rulesHints returns the probable mistakes in the rules of a module.
func rulesHints(module *ast.Module) []Problem {
	var found []Problem
	names, constants := namesIn(module), constantRules(module)
	for _, rule := range module.Rules {
		found = append(found, ruleHints(rule, newScope(names, constants, rule))...)
	}
	return found
}

// ruleHints returns the probable mistakes in one rule.
func ruleHints(rule *ast.Rule, names *scope) []Problem {
	var found []Problem
	if rule.Default && ruleName(rule) == "allow" && rule.Head.Value.Equal(ast.BooleanTerm(true)) {
		found = append(found, problemAt(rule.Location, HintDefaultAllow,
			"allow is true by default: a condition that an absent fact leaves undefined permits the pod"))
	}
	if ruleName(rule) == "deny" {
		found = append(found, names.messageReads(rule)...)
	}
	found = append(found, names.formats(rule)...)
	found = append(found, names.timeZones(rule)...)
	ast.WalkExprs(rule, func(expr *ast.Expr) bool {
		if term, ok := expr.Terms.(*ast.Term); ok && !expr.Negated {
			if what := constantName(term); what != "" {
				found = append(found, problemAt(expr.Location, HintEmptyCondition, "the body is "+what+", which is always true"))
			}
		}
		if names.comparesWithNumber(expr) {
			found = append(found, problemAt(expr.Location, HintNoNumber,
				"a label or annotation is a string: it is greater than every number, and equal to none; convert it by to_number"))
		}
		return false
	})
	return found
}

// constantName returns what a term is that is true with any input; empty for any other, and for true.
func constantName(term *ast.Term) string {
	switch value := term.Value.(type) {
	case ast.Object:
		if value.Len() == 0 {
			return "an empty object"
		}
	case *ast.Array:
		if value.Len() == 0 {
			return "an empty array"
		}
	case ast.String:
		return "a constant text"
	case ast.Number:
		return "a constant number"
	case ast.Set:
		if value.Len() == 0 {
			return "an empty set"
		}
	}
	return ""
}

// messageReads returns the optional facts that only the message of a deny reads: without one, nothing is denied.
func (s *scope) messageReads(rule *ast.Rule) []Problem {
	if rule.Head.Key == nil {
		return nil
	}
	parts, conditions := s.messageParts(rule)
	known := map[string]bool{}
	for _, read := range s.readsIn(conditions) {
		known[strings.Join(read.Path, "\x00")] = true
	}
	var found []Problem
	for _, read := range s.readsIn(parts) {
		path := strings.Join(read.Path, "\x00")
		if !isOptionalPath(read.Path) || read.Provided > 0 || known[path] {
			continue
		}
		known[path] = true
		place := read.Places[len(read.Places)-1]
		ref := ast.InputRootRef
		for _, key := range read.Path {
			ref = ref.Append(ast.StringTerm(key))
		}
		found = append(found, Problem{File: place.File, Row: place.Row, Column: place.Column, Code: HintMessageReads, Message: fmt.Sprintf(
			"the message reads %s, which can be absent: nothing is denied then", ref)})
	}
	return found
}

// readsIn returns the input values that rule parts read.
func (s *scope) readsIn(parts []any) []InputRead {
	reads := &ruleReads{found: s.reads.found, rule: s.reads.rule, names: s.reads.names}
	for _, part := range parts {
		reads.visit(part)
	}
	return reads.reads
}

// comparesWithNumber reports whether an expression compares an entry of a map of labels or annotations with a
// number.
func (s *scope) comparesWithNumber(expr *ast.Expr) bool {
	if !expr.IsCall() || len(expr.Operands()) != 2 || !slices.Contains([]string{"gt", "gte", "lt", "lte", "equal", "neq"}, expr.Operator().String()) {
		return false
	}
	left, right := expr.Operand(0), expr.Operand(1)
	return s.isOptional(left) && s.isNumber(right) || s.isNumber(left) && s.isOptional(right)
}

func ruleName(rule *ast.Rule) string { return rule.Head.Ref().String() }

func problemAt(place *ast.Location, code, message string) Problem {
	problem := Problem{Code: code, Message: message}
	problem.locate(place)
	return problem
}
