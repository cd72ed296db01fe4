package opa

import (
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"
)

// scope is where a term stands.
type scope struct {
	// vars that have a value.
	vars map[ast.Var]cost

	// input is what "with" puts in place of the input or a part of it; 0 outside of any.
	input int

	// counted: what is in it adds to the total of the module. Not so when a rule is looked at again
	// because another one refers to it.
	counted bool
}

// copy is a scope whose new variables stay its own.
func (s *scope) copy() *scope {
	return &scope{vars: maps.Clone(s.vars), input: s.input, counted: s.counted}
}

// raise gives a variable a value, or a heavier one. It says whether that changed anything.
func (s *scope) raise(name ast.Var, to cost) bool {
	old, known := s.vars[name]
	s.vars[name] = cost{whole: max(old.whole, to.whole), part: max(old.part, to.part)}
	return !known || s.vars[name] != old
}

// bind gives the variables of a pattern that have no value yet the weight of what the pattern is
// matched with.
func (w *estimator) bind(pattern *ast.Term, given cost, inner *scope) {
	w.raise(pattern, given, inner, maps.Clone(inner.vars))
}

// unify binds the variables on each side to the other side. A part of one side may need a variable
// that another part gives a value, in whatever order, so it goes on until nothing changes.
func (w *estimator) unify(left, right *ast.Term, inner *scope) int {
	// Giving a value a name is not a comparison, and the usual case.
	if isNew(left, inner.vars) {
		return w.name(left, right, inner)
	}
	if isNew(right, inner.vars) {
		return w.name(right, left, inner)
	}
	fixed := maps.Clone(inner.vars)
	for {
		weight, changed := w.match(left, right, inner, fixed)
		if !changed || !w.step(left.Location) {
			return weight
		}
	}
}

// name gives a variable the weight of a term.
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

// match raises the variables of both sides that are not fixed. It returns the weight of both, and
// whether anything changed.
func (w *estimator) match(left, right *ast.Term, inner *scope, fixed map[ast.Var]cost) (int, bool) {
	sum, changed := 2, false
	both := func(one, other *ast.Term) {
		weight, raised := w.match(one, other, inner, fixed)
		sum, changed = saturated(sum+weight), changed || raised
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

// raise gives the variables of a pattern that are not fixed the weight of what the pattern is
// matched with, or of its parts.
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
