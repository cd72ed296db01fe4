package opa

import (
	"context"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// decide evaluates the query until ctx is over. It returns the error of ctx if ctx ends first.
func (c *compiled) decide(ctx context.Context, input ast.Value) (*ast.Term, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// With a topdown.Cancel of its own, OPA starts no goroutine to watch the context.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	term, err := evaluate(ctx, c.query, cancel, input, c.transaction(cancel, input)...)
	if topdown.IsCancel(err) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return term, err
}

// transaction returns the option with which the library reads the rules of a user's module; a built-in
// rule has no such option.
func (c *compiled) transaction(cancel topdown.Cancel, input ast.Value) []rego.EvalOption {
	if c.rules == nil {
		return nil
	}
	return []rego.EvalOption{rego.EvalTransaction(&moduleEvaluation{program: c, cancel: cancel, input: input})}
}

// evaluate runs OPA. It ends some time after cancel was called, and not before a builtin or a
// comparison that is under way, of two huge documents for example.
func evaluate(
	ctx context.Context, query rego.PreparedEvalQuery, cancel topdown.Cancel, input ast.Value, options ...rego.EvalOption,
) (*ast.Term, error) {
	results, err := query.Eval(ctx, append(options,
		rego.EvalParsedInput(input),
		rego.EvalExternalCancel(cancel),
		// No allowed builtin reads the clock or a random number. Even if such a builtin is added
		// by mistake, two evaluations of the same input return the same result.
		rego.EvalTime(time.Unix(0, 0)),
		rego.EvalSeed(zeros{}),
	)...)
	if err != nil {
		return nil, zoneError(err)
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, ErrUndefined
	}
	term, ok := results[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, ErrUndefined
	}
	return term, nil
}

// zeros is a reader of zero bytes that does not end.
type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}
