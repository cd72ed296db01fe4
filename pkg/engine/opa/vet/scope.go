package vet

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxNames bounds how many names are followed to a value.
const maxNames = 4

// scope are the names that the terms of a rule may have.
type scope struct {
	// reads has the names that input values have.
	reads *ruleReads

	// locals are the terms that the body gives a name, and rules the values that rules and functions without a condition have.
	locals map[ast.Var]*ast.Term
	rules  map[string]*ast.Term
}

// constantRules returns the values that rules and functions have by one definition without a condition.
func constantRules(module *ast.Module) map[string]*ast.Term {
	values, definitions := map[string]*ast.Term{}, map[string]int{}
	for _, rule := range module.Rules {
		name := ruleName(rule)
		if definitions[name]++; definitions[name] > 1 {
			delete(values, name)
		} else if rule.Head.Value != nil && rule.Head.Key == nil && rule.Else == nil && isTrueBody(rule.Body) {
			values[name] = rule.Head.Value
		}
	}
	return values
}

// newScope returns the names in a rule. names come from namesIn, and rules from constantRules.
func newScope(names map[ast.Var][]InputRead, rules map[string]*ast.Term, rule *ast.Rule) *scope {
	made := &scope{reads: newRuleReads(rule, names, newReads()), locals: map[ast.Var]*ast.Term{}, rules: rules}
	ast.WalkExprs(rule, func(expr *ast.Expr) bool {
		if name, value, ok := assigned(expr); ok {
			made.locals[name] = value
		}
		return false
	})
	return made
}

func isTrueBody(body ast.Body) bool {
	return len(body) == 1 && body[0].Equal(ast.NewExpr(ast.BooleanTerm(true)))
}

// assigned returns the variable and the term of an assignment.
func assigned(expr *ast.Expr) (name ast.Var, value *ast.Term, ok bool) {
	if !expr.IsAssignment() && !expr.IsEquality() || expr.Negated {
		return "", nil, false
	}
	name, ok = expr.Operand(0).Value.(ast.Var)
	return name, expr.Operand(1), ok
}

// value follows the names that constants, calls and functions have.
func (s *scope) value(term *ast.Term) *ast.Term {
	for range maxNames {
		next := (*ast.Term)(nil)
		switch value := term.Value.(type) {
		case ast.Var:
			if next = s.locals[value]; next == nil {
				next = s.rules[string(value)]
			}
		case ast.Call:
			next = s.rules[value[0].String()]
		}
		if next == nil {
			return term
		}
		term = next
	}
	return term
}

// isOptional reports whether a term is a label or an annotation.
func (s *scope) isOptional(term *ast.Term) bool {
	if call, ok := term.Value.(ast.Call); ok && call[0].String() == "object.get" && len(call) > 3 {
		for _, read := range s.reads.inputValues(call[1]) {
			return isOptionalPath(providedRead(read, call[2]).Path)
		}
	}
	return slices.ContainsFunc(s.reads.inputValues(term), func(read InputRead) bool { return isOptionalPath(read.Path) })
}

// isOptionalPath reports whether a path leads to a label or an annotation.
func isOptionalPath(path []string) bool {
	return len(path) == 3 && slices.Contains([]string{"pod.labels", "pod.annotations", "namespace.labels", "node.labels"}, path[0]+"."+path[1])
}

// isNumber reports whether a term is a number: a constant, an arithmetic result, or a number in the input.
func (s *scope) isNumber(term *ast.Term) bool {
	switch value := s.value(term).Value.(type) {
	case ast.Number:
		return true
	case ast.Call:
		return slices.Contains([]string{"count", "to_number", "plus", "minus", "mul", "div"}, value[0].String())
	}
	return slices.ContainsFunc(s.reads.inputValues(term), func(read InputRead) bool {
		return slices.Equal(read.Path, []string{"now"}) || len(read.Path) == 2 && read.Path[0] == "counts"
	})
}

// messageParts returns the terms that only the message of a deny reads: its key, what the body names for it, and rules without a condition.
func (s *scope) messageParts(rule *ast.Rule) (parts, conditions []any) {
	named := messageNames(rule)
	parts = []any{rule.Head.Key}
	for _, expr := range rule.Body {
		if named[expr] {
			parts = append(parts, expr.Operand(1))
		} else {
			conditions = append(conditions, expr)
		}
	}
	for i := 0; i < len(parts) && i < maxNames; i++ {
		ast.WalkTerms(parts[i], func(term *ast.Term) bool {
			if name, ok := term.Value.(ast.Var); ok && s.rules[string(name)] != nil && s.locals[name] == nil {
				parts = append(parts, s.rules[string(name)])
			}
			return false
		})
	}
	return parts, conditions
}

// messageNames returns the assignments of names that no condition reads.
func messageNames(rule *ast.Rule) map[*ast.Expr]bool {
	named := map[*ast.Expr]bool{}
	for _, expr := range rule.Body {
		_, _, named[expr] = assigned(expr)
	}
	for isChanged := true; isChanged; { // a name that is a part of one that a condition reads is read by it
		isChanged = false
		read := map[ast.Var]bool{}
		for _, expr := range rule.Body {
			if !named[expr] {
				ast.WalkVars(expr, func(name ast.Var) bool { read[name] = true; return false })
			}
		}
		for _, expr := range rule.Body {
			if name, _, _ := assigned(expr); named[expr] && read[name] {
				named[expr], isChanged = false, true
			}
		}
	}
	return named
}
