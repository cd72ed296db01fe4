package vet

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of the estimated cost. A type check takes time in proportion to the square of the cost, so
// these limits amount to about 50 ms for one expression and half a second for a module.
const (
	// maxCost bounds one expression, and the value of one rule.
	maxCost = 2000

	// maxTotalCost bounds the sum of all expressions of a module.
	maxTotalCost = 20000

	// maxVisits bounds the terms that the estimator itself visits; a term counts at each visit.
	maxVisits = 200000
)

// withCostStage adds the estimate of the cost to a compiler. It runs after refs are resolved and
// bodies are in the order of evaluation, and before types are checked: checking the types of some
// hundred bytes can take minutes, and cannot be interrupted. A module above the limits is an
// ordinary error of the compiler, with a place; the later stages do not run.
//
// The cost of a term is the number of values in it; a variable, a rule or a call counts as its
// value. That is an upper bound of the work of comparing two such terms, as types and as values:
//
//	a := [1, 2]            3
//	b := {"l": a, "r": a}  1 + 2 keys + 2 * 3
//
// Only modules below data.rule are checked. Library modules are trusted.
func withCostStage(compiler *ast.Compiler) *ast.Compiler {
	return withNestingStage(compiler).WithStageAfterID(ast.StageCheckRecursion, ast.CompilerStageDefinition{
		Name:       "CheckCost",
		MetricName: "compile_stage_check_cost",
		Stage:      checkCost,
	})
}

// checkCost is the stage.
func checkCost(compiler *ast.Compiler) *ast.Error {
	w := &estimator{compiler: compiler, known: map[string]cost{}, open: map[string]bool{}, added: map[*ast.Expr]bool{}}
	for _, rule := range usersRules(compiler) {
		w.rule(rule)
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// usersRules returns the rules below data.rule in the order of the text, without the rules of else
// branches.
func usersRules(compiler *ast.Compiler) []*ast.Rule {
	found := []*ast.Rule{}
	for _, module := range compiler.Modules {
		if IsUsers(module) {
			found = append(found, module.Rules...)
		}
	}
	slices.SortFunc(found, byPlace)
	return found
}

// IsUsers reports whether a user wrote the module: data.rule or below.
func IsUsers(module *ast.Module) bool {
	return module.Package.Path.HasPrefix(RuleRoot())
}

func byPlace(a, b *ast.Rule) int {
	return cmp.Or(cmp.Compare(a.Location.Row, b.Location.Row), cmp.Compare(a.Location.Col, b.Location.Col))
}

// cost is the estimated cost of a value.
type cost struct {
	// whole is the cost of the whole value.
	whole int

	// part is the highest cost of any component, at any depth; never more than whole.
	part int
}

// estimator computes the costs of one compilation.
type estimator struct {
	compiler *ast.Compiler

	// known are the values of rules and functions, by everything that they depend on.
	known map[string]cost

	// open are the values that are being computed. The compiler rejects recursion before this
	// stage; if it ever does not, the estimate must still end.
	open map[string]bool

	// current is the rule under way, for messages.
	current *ast.Rule

	total, steps int

	// added are the bodies that are in the total, by their first expression.
	added map[*ast.Expr]bool

	// err is the first error; once it is set, nothing more is computed.
	err *ast.Error
}

// rule checks a rule and its else branches.
func (w *estimator) rule(rule *ast.Rule) {
	w.value(rule, &scope{counted: true}, nil)
}

// value returns the cost of the value of a rule, given the arguments of a function. It checks the
// expressions of the body.
func (w *estimator) value(rule *ast.Rule, outer *scope, arguments []cost) cost {
	caller := w.current
	defer func() { w.current = caller }()
	sum := cost{}
	for branch := rule; branch != nil && w.err == nil; branch = branch.Else {
		w.current = branch
		inner := &scope{vars: map[ast.Var]cost{}, input: outer.input, counted: outer.counted}
		for i, argument := range branch.Head.Args {
			given := scalar()
			if i < len(arguments) {
				given = arguments[i]
			}
			w.bind(argument, given, inner)
		}
		w.add(w.body(branch.Body, inner), branch.Body, inner)
		one := w.head(branch.Head, inner)
		w.limit(one.whole, branch.Location, "the value of rule %s", nameOf(branch))
		sum = plus(sum, one)
	}
	return sum
}

// head returns the cost that a rule adds to the value of its name. Members of a set and entries of
// an object are parts of that value.
func (w *estimator) head(head *ast.Head, inner *scope) cost {
	if head.Key == nil && head.Reference.IsGround() {
		return w.term(head.Value, inner)
	}
	held := []*ast.Term{}
	for _, term := range append([]*ast.Term{head.Key, head.Value}, head.Reference[1:]...) {
		if term != nil {
			held = append(held, term)
		}
	}
	all := w.sum(held, inner)
	return cost{whole: saturated(1 + all.whole), part: all.whole}
}

// body returns the sum of the costs of the expressions, and checks each of them.
func (w *estimator) body(body ast.Body, inner *scope) int {
	sum := 0
	for _, expression := range body {
		if w.err != nil {
			return sum
		}
		size := w.expression(expression, inner)
		w.limit(size, expression.Location, "an expression of rule %s", nameOf(w.current))
		sum = saturated(sum + size)
	}
	return sum
}

// add adds the cost of a body to the total of the module, once.
func (w *estimator) add(size int, body ast.Body, inner *scope) {
	if !inner.counted || len(body) == 0 || w.added[body[0]] {
		return
	}
	w.added[body[0]] = true
	if w.total += size; w.total > maxTotalCost {
		w.fail(body[0].Location, "the module is too complex: all its expressions together have a cost above %d; "+
			"split it into several rules of the PodTransitionRule", maxTotalCost)
	}
}

// limit fails if a cost is above maxCost.
func (w *estimator) limit(size int, place *ast.Location, what, name string) {
	if size <= maxCost {
		return
	}
	w.fail(place, "%s has a cost above %d: a value that holds another value several times over costs as much "+
		"as all of its copies; build smaller values", fmt.Sprintf(what, name), maxCost)
}

func (w *estimator) fail(place *ast.Location, format string, arguments ...any) {
	if w.err == nil {
		w.err = ast.NewError(ast.CompileErr, place, format, arguments...)
	}
}

// step counts a visit of the estimator.
func (w *estimator) step(place *ast.Location) bool {
	w.steps++
	if w.steps > maxVisits {
		w.fail(place, "the module is too complex: its rules and functions refer to each other on too many paths; "+
			"call fewer functions from functions")
	}
	return w.err == nil
}

// plus adds the costs of two values side by side.
func plus(a, b cost) cost {
	return cost{whole: saturated(a.whole + b.whole), part: max(a.part, b.part)}
}

// saturated keeps costs from overflowing; all values above the limit are equivalent.
func saturated(size int) int { return min(size, 16*maxTotalCost) }

func nameOf(rule *ast.Rule) string { return rule.Head.Ref().String() }
