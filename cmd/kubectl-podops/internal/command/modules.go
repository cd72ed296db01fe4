package command

import (
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
)

// Modules returns what compiles and evaluates modules, in processes with limits, or in this process where none can be started.
func (e *Environment) Modules() (*sandbox.Fallback, error) {
	modules, err := sandbox.NewFallback(func(err error) {
		_, _ = fmt.Fprintf(e.ErrOut, "warning: %v\nwarning: modules are compiled and evaluated in this process, "+
			"without limits of memory and stack\n", err)
	})
	if err != nil {
		return nil, fmt.Errorf("starting the policy engine: %w", err)
	}
	return modules, nil
}

// roundBudget is the time to evaluate a rule for all pods; no other namespace waits for it. Answers do
// not depend on how busy this machine is.
const roundBudget = time.Hour

// Engine returns a policy engine that compiles and evaluates modules with the Workers of options, or else with Modules.
func (e *Environment) Engine(options opa.Options) (*opa.Engine, error) {
	if options.Workers == nil {
		modules, err := e.Modules()
		if err != nil {
			return nil, err
		}
		options.Workers = modules
	}
	options.Timeout, options.RoundBudget = roundBudget, roundBudget
	engine, err := opa.New(options)
	if err != nil {
		return nil, fmt.Errorf("starting the policy engine: %w", err)
	}
	return engine, nil
}
