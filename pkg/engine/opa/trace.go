package opa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Trace evaluates a user's module again on an observed input, and writes the steps of OPA with the lines of
// the module. It has the time of Options.Timeout, and does not call Options.Observe.
func (e *Engine) Trace(ctx context.Context, owner string, source Source, input json.RawMessage, out io.Writer) error {
	info, err := e.moduleInfoFor(ctx, owner, compiledKey{kind: "rego", module: source.Module, schema: string(source.ParametersSchema)})
	if err != nil {
		return fmt.Errorf("compiling the module: %w", err)
	}
	ready, err := e.compiledModule(ctx, owner, info)
	if err != nil {
		return fmt.Errorf("compiling the module: %w", err)
	}
	value, err := ast.ValueFromReader(bytes.NewReader(input))
	if err != nil {
		return fmt.Errorf("reading the input: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, e.options.Timeout)
	defer stop()
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	tracer := topdown.NewBufferTracer()
	for _, name := range slices.Sorted(maps.Keys(ready.rules)) {
		// An undefined rule and an error are steps of the trace. Without an index each condition is.
		_, _ = evaluate(ctx, ready.rules[name], cancel, value, rego.EvalQueryTracer(tracer), rego.EvalRuleIndexing(false))
	}
	topdown.PrettyTraceWithLocation(out, *tracer)
	return ctx.Err()
}
