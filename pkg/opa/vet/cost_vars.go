package vet

import (
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"
)

// scope is the context of a term.
type scope struct {
	// vars are the costs of the variables that have a value.
	vars map[ast.Var]cost

	// input is the cost of the values that "with" puts in place of the input or a part of it; 0
	// without.
	input int

	// counted is set if the expressions add to the total of the module. It is not set when a rule
	// is visited again because another rule refers to it.
	counted bool
}

// copy returns a scope whose new variables are not visible in s.
func (s *scope) copy() *scope {
	return &scope{vars: maps.Clone(s.vars), input: s.input, counted: s.counted}
}

// raise sets the cost of a variable, or raises it, and reports whether it changed.
func (s *scope) raise(name ast.Var, to cost) bool {
	old, known := s.vars[name]
	s.vars[name] = cost{whole: max(old.whole, to.whole), part: max(old.part, to.part)}
	return !known || s.vars[name] != old
}

// bind sets the costs of the variables of a pattern that have no value yet, by the value that the
// pattern is matched with.
func (w *estimator) bind(pattern *ast.Term, given cost, inner *scope) {
	w.raise(pattern, given, inner, maps.Clone(inner.vars))
}

// unify binds the variables on each side to the other side. A part of one side may need a variable
// that another part binds, in any order, so it repeats until nothing changes.
func (w *estimator) unify(left, right *ast.Term, inner *scope) int {
	// An assignment to a new variable is not a comparison, and the usual case.
	if isNew(left, inner.vars) {
		return w.name(left, right, inner)
	}
	if isNew(right, inner.vars) {
		return w.name(right, left, inner)
	}
	fixed := maps.Clone(inner.vars)
	for {
		size, changed := w.match(left, right, inner, fixed)
		if !changed || !w.step(left.Location) {
			return size
		}
	}
}

// name sets the cost of a variable to the cost of a term.
func (w *estimator) name(variable, term *ast.Term, inner *scope) int {
	given := w.term(term, inner)
	inner.raise(variable.Value.(ast.Var), given)
	return given.whole
}

func isNew(term *ast.Term, fixed map[ast.Var]cost) bool {
	name, isVar := term.Value.(ast.Var)
	_, known := fixed[name]
	return isVar && !known
}

// match raises the variables of both sides that are not fixed. It returns the cost of both, and
// whether a variable changed.
func (w *estimator) match(left, right *ast.Term, inner *scope, fixed map[ast.Var]cost) (int, bool) {
	sum, changed := 2, false
	both := func(one, other *ast.Term) {
		size, raised := w.match(one, other, inner, fixed)
		sum, changed = saturated(sum+size), changed || raised
	}
	if one, other, ok := arrays(left, right); ok {
		for i := range one.Len() {
			both(one.Elem(i), other.Elem(i))
		}
		return sum, changed
	}
	if one, other, ok := objects(left, right); ok {
		one.Foreach(func(key, item *ast.Term) {
			if facing := other.Get(key); facing != nil {
				both(item, facing)
			}
		})
		return sum, changed
	}
	toLeft, toRight := w.term(right, inner), w.term(left, inner)
	changed = w.raise(left, toLeft, inner, fixed)
	changed = w.raise(right, toRight, inner, fixed) || changed
	return saturated(toLeft.whole + toRight.whole), changed
}

// raise sets the costs of the variables of a pattern that are not fixed, by the value that the
// pattern is matched with or by its parts.
func (w *estimator) raise(pattern *ast.Term, given cost, inner *scope, fixed map[ast.Var]cost) bool {
	changed := false
	inside := func(child *ast.Term) {
		part := cost{whole: given.part, part: given.part}
		changed = w.raise(child, part, inner, fixed) || changed
	}
	switch value := pattern.Value.(type) {
	case ast.Var:
		if isNew(pattern, fixed) {
			changed = inner.raise(value, given)
		}
	case *ast.Array:
		value.Foreach(inside)
	case ast.Object:
		value.Foreach(func(_, item *ast.Term) { inside(item) })
	}
	return changed
}

func arrays(left, right *ast.Term) (one, other *ast.Array, ok bool) {
	one, isOne := left.Value.(*ast.Array)
	other, isOther := right.Value.(*ast.Array)
	return one, other, isOne && isOther && one.Len() == other.Len()
}

func objects(left, right *ast.Term) (one, other ast.Object, ok bool) {
	one, isOne := left.Value.(ast.Object)
	other, isOther := right.Value.(ast.Object)
	return one, other, isOne && isOther
}
