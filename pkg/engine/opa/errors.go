package opa

import (
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// ErrUndefined is returned by Evaluate when a rule gives no decision at all, because a fact that
// the whole batch needs is missing.
var ErrUndefined = errors.New("the rule gives no decision")

// ErrTimeout means that a user's module used up its CPU time, its memory or its stack.
var ErrTimeout = errors.New("the module gave no answer")

// ErrNotReached means that a user's module was not evaluated for a request: the time of the round was over,
// or the machine failed or was too busy. The module may be good.
var ErrNotReached = errors.New("the module was not evaluated")

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
