package opa_test

import (
	"context"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// endless is a module that computes until it is stopped.
const endless = "package rule\n\nallow if {\n\tsome i in numbers.range(1, 9000)\n\tsome j in numbers.range(1, 9000)\n\ti * j < 0\n}\n"

// TestLimit checks that a module is stopped when it has used up its time, and that the next request has as much.
func TestLimit(t *testing.T) {
	const limit = 50 * time.Millisecond
	e := newEngine(t, opa.Options{CustomTimeout: limit, RoundBudget: time.Hour})
	program, err := e.Prepare(t.Context(), custom(t, endless))
	if err != nil {
		t.Fatal(err)
	}
	requests := []rule.Request{request(0, true), request(1, true)}
	result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range requests {
		got := result.Verdicts[request.Key()]
		if want := "the module gave no answer: it used up its time of 50ms"; got.Code != rule.CodeTimeout || got.Message != want {
			t.Errorf("got %+v, want a timeout with %q", got, want)
		}
	}
	if result.CPUTime < 2*limit {
		t.Errorf("it used %v of CPU time, want at least %v", result.CPUTime, 2*limit)
	}
}

// TestCancelled checks that the end of a caller ends the evaluation, without a timeout of the module.
func TestCancelled(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: time.Hour, RoundBudget: time.Hour})
	program, err := e.Prepare(t.Context(), custom(t, endless))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	result, err := program.Evaluate(ctx, program.Stage(), rule.Environment{}, []rule.Request{request(0, true)})
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Verdicts[request(0, true).Key()]; got.Code != rule.CodeNotReached {
		t.Errorf("got %+v, want it not reached", got)
	}
}
