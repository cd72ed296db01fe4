package vet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// HintTimeZone means that a constant time zone does not exist, so that each call with it fails, or is that of a machine.
const HintTimeZone = "time-zone"

// timeZones returns the constant time zones that do not exist. Builtins time.* take a time zone as second item of an array.
func (s *scope) timeZones(rule *ast.Rule) []Problem {
	var found []Problem
	walkCalls(rule, func(name string, _ *ast.Location, operands []*ast.Term) {
		for _, operand := range operands {
			items, ok := s.value(operand).Value.(*ast.Array)
			if !ok || !strings.HasPrefix(name, "time.") || items.Len() < 2 {
				continue
			}
			zone, ok := s.value(items.Elem(1)).Value.(ast.String)
			if !ok {
				continue
			}
			if _, err := time.LoadLocation(string(zone)); err != nil {
				found = append(found, problemAt(items.Elem(1).Location, HintTimeZone, fmt.Sprintf("there is no time zone %s: the call fails", zone)))
			} else if zone == "Local" {
				found = append(found, problemAt(items.Elem(1).Location, HintTimeZone, "Local is UTC in rules: name the time zone"))
			}
		}
	})
	return found
}

// walkCalls calls a function for each call of a rule.
func walkCalls(rule *ast.Rule, visit func(name string, place *ast.Location, operands []*ast.Term)) {
	ast.WalkTerms(rule, func(term *ast.Term) bool {
		if call, ok := term.Value.(ast.Call); ok {
			visit(call[0].String(), term.Location, call[1:])
		}
		return false
	})
	ast.WalkExprs(rule, func(expr *ast.Expr) bool {
		if expr.IsCall() {
			visit(expr.Operator().String(), expr.Location, expr.Operands())
		}
		return false
	})
}

// HintSchemas means that a module has a schemas annotation, which has no effect here and which opa check reads.
const HintSchemas = "schemas-annotation"

// schemaAnnotations returns the schemas annotations of a module that was parsed with its comments.
func schemaAnnotations(module *ast.Module) []Problem {
	at := slices.IndexFunc(module.Comments, func(comment *ast.Comment) bool {
		return strings.TrimSpace(string(comment.Text)) == "schemas:"
	})
	if at < 0 {
		return nil
	}
	return []Problem{problemAt(module.Comments[at].Location, HintSchemas,
		"a schemas annotation has no effect: the types of the input are known, and those of the parameters come from the PodTransitionPolicy")}
}
