package opa

import "github.com/podops-dev/podops/pkg/opa/vet"

// Codes of the problems that Hints returns.
const (
	// HintNoReason means that a module with allow has no reason.
	HintNoReason = vet.HintNoReason

	// HintNegatedLookup means that deny negates an expression with a look-up in the input in it: a fact that
	// is absent then denies nothing.
	HintNegatedLookup = vet.HintNegatedLookup
)

// Hints returns the probable mistakes in a module that compiles. Rules are evaluated all the same.
func Hints(module string) ([]Problem, error) { return vet.Hints(module) }
