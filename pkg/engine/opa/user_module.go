package opa

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// compileModule compiles a user's module with what it imports, and nothing else. The library of PodOps, which decides by the values of its
// rules, is compiled once for all modules with the same entry point: it is four times as large as a
// module.
func (e *Engine) compileModule(ctx context.Context, key compiledKey) (*compiled, error) {
	modules, entry, err := vet.Read(key.module, e.capabilities)
	if err != nil {
		return nil, err
	}
	schemas, err := vet.Schemas(e.schema, key.schema)
	if err != nil {
		return nil, err
	}
	compiler := ast.NewCompiler().WithSchemas(schemas)
	if err := e.compile(compiler, withoutComments(modules)); err != nil {
		return nil, err
	}
	checked, err := vet.Check(compiler, entry)
	if err != nil {
		return nil, err
	}
	// Calls have the arguments of their builtins from here on.
	inspected := Inspection{Entry: entry, Hints: vet.Hints(modules, entry), Parameters: vet.ReadParameters(modules[vet.File])}
	inspected.Needs = e.moduleNeeds(slices.Collect(maps.Values(compiler.Modules)))
	made := &compiled{
		moduleInfo:    &moduleInfo{key: key, source: key.hash(), Inspection: inspected},
		missingReason: findMissingReason(checked),
		rules:         map[string]rego.PreparedEvalQuery{},
	}
	for _, name := range readRules(entry) {
		rule := vet.RuleRoot().Append(ast.StringTerm(name))
		if len(compiler.GetRulesExact(rule)) == 0 {
			continue
		}
		if made.rules[name], err = prepareQuery(ctx, compiler, rule); err != nil {
			return nil, err
		}
	}
	made.query, err = e.customQuery(ctx, entry)
	return made, err
}

// withoutComments returns modules without their comments, which the compiled program would hold.
func withoutComments(modules map[string]*ast.Module) map[string]*ast.Module {
	found := map[string]*ast.Module{}
	for file, module := range modules {
		bare := *module
		bare.Comments = nil
		found[file] = &bare
	}
	return found
}

// moduleNeeds returns the parts of the environment that modules read, or all of them with Options.WholeInput.
func (e *Engine) moduleNeeds(modules []*ast.Module) Needs {
	found := vet.ReadNeeds(modules...)
	if e.options.WholeInput {
		return found.All()
	}
	return found
}

// readRules returns the rules that the library reads from a module with an entry point.
func readRules(entry spec.Entry) []string {
	if entry == spec.EntryAllow {
		return []string{"allow", "reason"}
	}
	return []string{"deny"}
}

// customQuery returns the query about modules with an entry point, compiled on first use.
func (e *Engine) customQuery(ctx context.Context, entry spec.Entry) (rego.PreparedEvalQuery, error) {
	e.libraryMu.Lock()
	defer e.libraryMu.Unlock()
	if query, ok := e.customQueries[entry]; ok {
		return query, nil
	}
	query, err := e.libraryQuery(ctx, spec.Library(rule.KindRego), entry)
	if err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	e.customQueries[entry] = query
	return query, nil
}

// userRules is the store of OPA from which the library reads data.rule. It holds nothing: it
// evaluates a rule of the user's module when the library reads the rule, and only then.
type userRules struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported
}

// moduleEvaluation is one evaluation of a user's module, in the place of a transaction.
type moduleEvaluation struct {
	program *compiled
	cancel  topdown.Cancel
	input   ast.Value
}

// ID returns 0: no caller uses the id of a transaction.
func (a *moduleEvaluation) ID() uint64 { return 0 }

// Read evaluates the rule at a path. An undefined rule is not found.
func (userRules) Read(ctx context.Context, transaction storage.Transaction, path storage.Path) (any, error) {
	notFound := &storage.Error{Code: storage.NotFoundErr, Message: path.String()}
	current, ok := transaction.(*moduleEvaluation)
	if !ok || len(path) != 2 || path[0] != "rule" {
		return nil, notFound
	}
	rule, ok := current.program.rules[path[1]]
	if !ok {
		return nil, notFound
	}
	term, err := evaluate(ctx, rule, current.cancel, current.input)
	if errors.Is(err, ErrUndefined) {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	return term.Value, nil
}

// NewTransaction returns a transaction in which every rule is undefined.
func (userRules) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return &moduleEvaluation{program: &compiled{}}, nil
}

// Commit has nothing to do.
func (userRules) Commit(context.Context, storage.Transaction) error { return nil }

// Abort has nothing to do.
func (userRules) Abort(context.Context, storage.Transaction) {}

// Truncate returns an error: the store cannot be written.
func (userRules) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("the rules of a module cannot be written")
}
