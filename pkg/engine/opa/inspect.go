package opa

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// Needs lists the parts of the environment that a module reads.
type Needs = vet.Needs

// Inspection is the result of Inspect.
type Inspection struct {
	// Entry is the rule that decides.
	Entry spec.Entry

	Needs Needs

	// Hints are the probable mistakes in the module. Rules are evaluated all the same.
	Hints []Problem

	// Parameters are the parameters that the module reads.
	Parameters vet.Parameters
}

// Inspect checks a user's module: its size, package and entry point, its calls and references, and
// its types against the schema of the input, with the schema of the parameters for
// input.parameters. A module without errors can be prepared.
//
// The error is a *CompileError if the module is wrong. ctx is passed to Options.Workers; it does not interrupt the
// compiler of this process.
func (e *Engine) Inspect(ctx context.Context, source Source) (found Inspection, err error) {
	defer func() {
		if value := recover(); value != nil {
			found, err = Inspection{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("inspecting a module: %w", err)
		}
	}()
	key := compiledKey{kind: rule.KindRego, module: source.Module, schema: string(source.ParametersSchema)}
	made, err := e.moduleInfoFor(ctx, source.Owner, key)
	if err != nil {
		return Inspection{}, err
	}
	return made.Inspection, nil
}

// IsCompiled reports whether Inspect and Prepare find a module compiled already.
func (e *Engine) IsCompiled(source string, parametersSchema json.RawMessage) bool {
	return e.knownInfo(compiledKey{kind: rule.KindRego, module: source, schema: string(parametersSchema)}.hash()) != nil
}
