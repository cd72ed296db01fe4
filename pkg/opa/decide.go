package opa

import (
	"context"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// decide evaluates the query until ctx is over. The end of ctx is the error, as ctx says it.
func (c *compiled) decide(ctx context.Context, input ast.Value) (*ast.Term, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// With a Cancel of our own OPA needs no goroutine to watch the context.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	term, err := c.evaluate(ctx, cancel, input)
	if topdown.IsCancel(err) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return term, err
}

// evaluate asks OPA. It ends some time after cancel says so, and not at all if OPA is in the midst
// of a comparison of two huge documents, say.
func (c *compiled) evaluate(ctx context.Context, cancel topdown.Cancel, input ast.Value) (*ast.Term, error) {
	if c.rules == nil {
		return evaluate(ctx, c.query, cancel, input)
	}
	return evaluate(ctx, c.query, cancel, input, rego.EvalTransaction(&asking{program: c, cancel: cancel, input: input}))
}

func evaluate(
	ctx context.Context, query rego.PreparedEvalQuery, cancel topdown.Cancel, input ast.Value, options ...rego.EvalOption,
) (*ast.Term, error) {
	results, err := query.Eval(ctx, append(options,
		rego.EvalParsedInput(input),
		rego.EvalExternalCancel(cancel),
		// No allowed builtin reads the clock or a random number. Should one ever slip in, it must
		// not make two evaluations of the same facts differ.
		rego.EvalTime(time.Unix(0, 0)),
		rego.EvalSeed(zeros{}),
	)...)
	if err != nil {
		return nil, err
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

// zeros reads as zero bytes without end.
type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}
