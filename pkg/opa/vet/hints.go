package vet

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Codes of the problems that Hints returns.
const (
	HintNoReason      = "missing-reason"
	HintNegatedLookup = "negated-lookup"
)

// Hints returns the probable mistakes in a module that compiles.
func Hints(source string) ([]Problem, error) {
	if err := CheckSize(source); err != nil {
		return nil, err
	}
	module, entry, err := Read(source, Capabilities())
	if err != nil {
		return nil, AsCompileError(err)
	}
	if entry == spec.EntryDeny {
		return negatedLookups(module), nil
	}
	for _, rule := range module.Rules {
		if rule.Head.Ref()[0].Value.String() == "reason" {
			return nil, nil
		}
	}
	return []Problem{problemAt(module.Package.Location, HintNoReason,
		`the module has no reason: a pod that it withholds gets the code NotAllowed and no text; add "reason := ..."`)}, nil
}

// negatedLookups returns the expressions of a module that negate a call with a field of the input in it. A field
// that is absent leaves the whole body undefined.
func negatedLookups(module *ast.Module) []Problem {
	var found []Problem
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if !expr.Negated || !expr.IsCall() {
			return false
		}
		looksUp := false
		ast.WalkRefs(expr, func(ref ast.Ref) bool {
			looksUp = looksUp || ref.HasPrefix(ast.Ref{ast.InputRootDocument}) && len(ref) > 1
			return false
		})
		if looksUp {
			found = append(found, problemAt(expr.Location, HintNegatedLookup,
				"an absent field leaves this condition undefined, and then nothing is denied; negate a rule of your own instead"))
		}
		return false
	})
	return found
}

func problemAt(place *ast.Location, code, message string) Problem {
	problem := Problem{Code: code, Message: message}
	if place != nil {
		problem.Row, problem.Column = place.Row, place.Col
	}
	return problem
}
