package opa

import (
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/opa/vet"
)

// ErrUndefined is returned by Evaluate when a rule gives no decision at all, because a fact that
// the whole batch needs is missing.
var ErrUndefined = errors.New("the rule gives no decision")

// ErrTimeout means that a user's module did not finish before its deadline, or was not evaluated
// because an earlier evaluation of it still runs after its own deadline.
var ErrTimeout = errors.New("the module did not answer in time")

// CompileError lists why a module cannot be used.
type CompileError = vet.CompileError

// Problem is one entry of a CompileError.
type Problem = vet.Problem

// PanicError is a panic of the engine that was converted to an error at the boundary of this
// package.
type PanicError struct {
	Value any

	// Stack is the stack of the goroutine that panicked, for the log.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic in the policy engine: %v", e.Value) }
