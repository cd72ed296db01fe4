package vet

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/podops-dev/podops/pkg/opa/limits"
)

// expression returns the cost of all terms of an expression, and adds the variables that it assigns
// to the scope.
func (w *estimator) expression(expression *ast.Expr, inner *scope) int {
	if !w.step(expression.Location) {
		return 0
	}
	replaced, size := w.with(expression, inner)
	switch terms := expression.Terms.(type) {
	case *ast.Term:
		return saturated(size + w.term(terms, replaced).whole)
	case []*ast.Term:
		return saturated(size + w.call(terms, replaced))
	case *ast.Every:
		domain := w.term(terms.Domain, replaced)
		body := replaced.copy()
		for _, term := range []*ast.Term{terms.Key, terms.Value} {
			if term != nil {
				w.bind(term, cost{whole: domain.part, part: domain.part}, body)
			}
		}
		w.add(w.body(terms.Body, body), terms.Body, inner)
		return saturated(size + domain.whole)
	default:
		w.fail(expression.Location, "expressions of this kind are not supported in a rule")
		return 0
	}
}

// with returns the scope of the terms of an expression with modifiers, and the cost of the
// modifiers.
func (w *estimator) with(expression *ast.Expr, inner *scope) (*scope, int) {
	if len(expression.With) == 0 {
		return inner, 0
	}
	size := 0
	for _, modifier := range expression.With {
		target, ok := modifier.Target.Value.(ast.Ref)
		if !ok || !target.HasPrefix(ast.InputRootRef) {
			w.fail(modifier.Location, "with replaces input and parts of it only in a rule, not %v", modifier.Target)
		}
		size += w.term(modifier.Value, inner).whole
	}
	// The scopes share their variables: the expression assigns them for the expressions that
	// follow.
	replaced := &scope{vars: inner.vars, input: saturated(inner.input + size), counted: inner.counted}
	return replaced, saturated(size)
}

// call returns the cost of a call with all of its arguments. An argument beyond the arity takes the
// result.
func (w *estimator) call(terms []*ast.Term, inner *scope) int {
	operator, ok := terms[0].Value.(ast.Ref)
	if !ok {
		return w.sum(terms, inner).whole
	}
	arguments := terms[1:]
	if len(arguments) == 2 && (operator.Equal(ast.Equality.Ref()) || operator.Equal(ast.Assign.Ref())) {
		return w.unify(arguments[0], arguments[1], inner)
	}
	arity := w.arity(operator, len(arguments))
	// Each argument is visited once: a second visit would double the work at each level of nesting.
	given := make([]cost, 0, arity)
	sum := cost{}
	for _, argument := range arguments[:arity] {
		one := w.term(argument, inner)
		given, sum = append(given, one), plus(sum, one)
	}
	result := w.result(operator, given, sum, inner)
	for _, output := range arguments[arity:] {
		w.bind(output, result, inner)
	}
	return saturated(sum.whole + result.whole)
}

// arity returns how many of the terms of a call are arguments.
func (w *estimator) arity(operator ast.Ref, terms int) int {
	if arity := w.compiler.GetArity(operator); arity >= 0 && arity < terms {
		return arity
	}
	return terms
}

// result returns the cost of the result of a call. Builtins return no more than their arguments
// hold; the exceptions have bounds of their own.
func (w *estimator) result(operator ast.Ref, given []cost, sum cost, inner *scope) cost {
	if operator[0].Equal(ast.DefaultRootDocument) {
		return w.values(operator, given, inner)
	}
	if builtin, known := ast.BuiltinMap[operator.String()]; known {
		switch builtin.Decl.Result() {
		case types.B, types.N, types.S:
			return scalar()
		}
	}
	return cost{whole: saturated(1 + sum.whole), part: max(1, sum.whole)}
}

// values returns the cost of all rules that a ref may refer to, together.
func (w *estimator) values(ref ast.Ref, arguments []cost, inner *scope) cost {
	outer := &scope{input: inner.input}
	key := fmt.Sprint(ref, arguments, outer.input)
	if known, ok := w.known[key]; ok {
		return known
	}
	if w.open[key] {
		w.fail(w.current.Location, "rule %s refers to itself", nameOf(w.current))
		return cost{}
	}
	w.open[key] = true
	defer delete(w.open, key)
	rules := w.compiler.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})
	slices.SortFunc(rules, byPlace)
	sum := cost{}
	for _, rule := range rules {
		one := w.value(rule, outer, arguments)
		if len(ref) > len(rule.Ref().GroundPrefix()) {
			one.whole = one.part
		}
		sum = plus(sum, one)
	}
	w.known[key] = sum
	return sum
}

// term returns the cost of a term.
func (w *estimator) term(term *ast.Term, inner *scope) cost {
	if !w.step(term.Location) {
		return cost{}
	}
	switch value := term.Value.(type) {
	case ast.Number:
		if err := limits.CheckNumber(string(value)); err != nil {
			w.fail(term.Location, "the number %v", err)
		}
		return scalar()
	case ast.Var:
		if known, ok := inner.vars[value]; ok {
			return known
		}
		return scalar()
	case ast.Ref:
		return w.ref(value, inner)
	case *ast.Array, ast.Set, ast.Object:
		return w.container(term, inner)
	case *ast.ArrayComprehension:
		return w.comprehension(value.Body, inner, value.Term)
	case *ast.SetComprehension:
		return w.comprehension(value.Body, inner, value.Term)
	case *ast.ObjectComprehension:
		return w.comprehension(value.Body, inner, value.Key, value.Value)
	case ast.Call:
		size := w.call(value, inner)
		return cost{whole: size, part: size}
	default:
		return scalar()
	}
}

// container returns one more than the cost of all items.
func (w *estimator) container(term *ast.Term, inner *scope) cost {
	all := cost{whole: 1}
	hold := func(child *ast.Term) {
		one := w.term(child, inner)
		all = cost{whole: saturated(all.whole + one.whole), part: max(all.part, one.whole)}
	}
	switch value := term.Value.(type) {
	case *ast.Array:
		value.Foreach(hold)
	case ast.Set:
		value.Foreach(hold)
	case ast.Object:
		value.Foreach(func(key, item *ast.Term) { hold(key); hold(item) })
	}
	return all
}

// comprehension returns the cost of one item: a type check visits a single item, and the
// evaluation that makes the value can be interrupted.
func (w *estimator) comprehension(body ast.Body, inner *scope, heads ...*ast.Term) cost {
	own := inner.copy()
	w.add(w.body(body, own), body, own)
	item := w.sum(heads, own)
	return cost{whole: saturated(1 + item.whole), part: item.whole}
}

// sum returns the cost of several terms.
func (w *estimator) sum(terms []*ast.Term, inner *scope) cost {
	all := cost{}
	for _, term := range terms {
		all = plus(all, w.term(term, inner))
	}
	return all
}

// ref returns the cost of the value that a ref points to. A variable in the ref without a value
// gets the cost of a key, which is a component too.
func (w *estimator) ref(ref ast.Ref, inner *scope) cost {
	var base cost
	switch {
	case ref[0].Equal(ast.InputRootDocument):
		base = inputCost(ref, inner)
	case ref[0].Equal(ast.DefaultRootDocument):
		base = w.values(ref, nil, inner)
	default:
		base = w.term(ref[0], inner)
		if len(ref) > 1 {
			base.whole = base.part
		}
	}
	indexes := 0
	for _, index := range ref[1:] {
		if _, isVar := index.Value.(ast.Var); isVar {
			w.bind(index, cost{whole: max(1, base.part), part: max(1, base.part)}, inner)
		} else if !ast.IsConstant(index.Value) {
			indexes = saturated(indexes + w.term(index, inner).whole)
		}
	}
	return cost{whole: saturated(max(1, base.whole) + indexes), part: max(1, base.part)}
}

// inputCost returns the cost of a part of the input. Types of the input are small. Values are not,
// and a rule that copies all pods a hundred times must be expensive.
func inputCost(ref ast.Ref, inner *scope) cost {
	const all, list, one = 256, 128, 8
	found := scalar()
	field := ast.String("")
	if len(ref) > 1 {
		field, _ = ref[1].Value.(ast.String)
	}
	switch {
	case len(ref) == 1:
		found = cost{whole: all, part: list}
	case field == "":
		found = cost{whole: list, part: list}
	case len(ref) == 2 && slices.Contains([]ast.String{"pods", "permits", "parameters"}, field):
		found = cost{whole: list, part: one}
	case len(ref) == 2, len(ref) == 3 && field == "pods", len(ref) > 2 && field == "parameters":
		found = cost{whole: one, part: one}
	}
	return cost{whole: saturated(found.whole + inner.input), part: saturated(found.part + inner.input)}
}

// scalar returns the cost of a value without components.
func scalar() cost { return cost{whole: 1, part: 1} }
