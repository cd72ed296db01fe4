package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
)

const (
	// moduleFile is the name under which the module of a user is compiled. No library file is at the
	// root, so the two cannot collide.
	moduleFile = "rule.rego"

	// entryFile is that of the module that asks the library.
	entryFile = "entry.rego"
)

// shape is a compiled program: all that rules with different literals and parameters share.
type shape struct {
	// source is the hash of the key, in hex.
	source string

	entry compile.Entry
	needs Needs

	// query is the decision.
	query rego.PreparedEvalQuery

	// rules are those of a user's module that the decision may ask, by name; nil for built-in kinds.
	rules map[string]rego.PreparedEvalQuery

	// runaways is how many evaluations of it are past their deadline and still run.
	runaways atomic.Int32
}

// shapeKey is all that a compiled program is made from.
type shapeKey struct {
	kind policy.Kind

	// module of the user, and the JSON schema of its parameters; empty for built-in kinds.
	module, schema string
}

func keyOf(module compile.Module) shapeKey {
	if module.Custom == nil {
		return shapeKey{kind: module.Kind}
	}
	return shapeKey{kind: module.Kind, module: module.Custom.Source, schema: string(module.Custom.ParametersSchema)}
}

// hash is the same for the same key, and for no other one.
func (k shapeKey) hash() string {
	// The lengths keep the parts apart.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d\n%s%s", k.kind, len(k.module), len(k.schema), k.module, k.schema))
	return hex.EncodeToString(sum[:])
}

// shapeOf compiles what a key stands for, or returns what was compiled before.
func (e *Engine) shapeOf(ctx context.Context, key shapeKey) (*shape, error) {
	hash := key.hash()
	if known, ok := e.shapes.Get(hash); ok {
		return known.(*shape), nil
	}
	made, err := e.newShape(ctx, key)
	if err != nil {
		return nil, compileError(err)
	}
	made.source = hash
	e.compilations.Add(1)
	e.shapes.Add(hash, made)
	return made, nil
}

func (e *Engine) newShape(ctx context.Context, key shapeKey) (*shape, error) {
	switch key.kind {
	case policy.KindAvailablePolicy, policy.KindLabelCheck, policy.KindWebhook:
		query, err := e.libraryQuery(ctx, compile.Library(key.kind), "")
		return &shape{query: query, needs: Needs{Counts: key.kind == policy.KindAvailablePolicy}}, err
	case policy.KindRego:
		return e.customShape(ctx, key)
	default:
		return nil, fmt.Errorf("rules of kind %q cannot be evaluated", key.kind)
	}
}

// libraryQuery compiles a package of the library. It is the decision of a rule whose literal comes
// with the input. entry is that of a user's module, and empty for built-in kinds.
func (e *Engine) libraryQuery(ctx context.Context, library string, entry compile.Entry) (rego.PreparedEvalQuery, error) {
	asks, err := e.parse(entryFile, entrySource(library, entry))
	if err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	modules := e.library.needed(asks)
	modules[entryFile] = asks
	compiler := ast.NewCompiler()
	if err := e.compile(compiler, modules); err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	return prepareQuery(ctx, compiler, asks.Package.Path.Append(ast.StringTerm("decision")), rego.Store(userRules{}))
}

// entrySource is the module that asks a package of the library: the shared form of what
// compile.Rule writes for people, with the literal in the input.
func entrySource(library string, entry compile.Entry) string {
	arguments := []string{"input", "input.rule"}
	if entry != "" {
		arguments = append(arguments, fmt.Sprintf("%q", entry))
	}
	return fmt.Sprintf("package podops.entry\n\nimport data.podops.rules.%s\n\ndecision := %s.decision(%s)\n",
		library, library, strings.Join(arguments, ", "))
}

func (e *Engine) parse(file, source string) (*ast.Module, error) {
	return ast.ParseModuleWithOpts(file, source, ast.ParserOptions{Capabilities: e.capabilities})
}

// compile compiles modules, or says what is wrong with them.
func (e *Engine) compile(compiler *ast.Compiler, modules map[string]*ast.Module) error {
	compiler = compiler.WithStrict(true).WithCapabilities(e.capabilities)
	if compiler.Compile(modules); compiler.Failed() {
		return compiler.Errors
	}
	return nil
}

// prepareQuery is the question for one document.
func prepareQuery(
	ctx context.Context, compiler *ast.Compiler, document ast.Ref, options ...func(*rego.Rego),
) (rego.PreparedEvalQuery, error) {
	options = append(slices.Clone(options),
		rego.Compiler(compiler),
		rego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(document)))),
		rego.StrictBuiltinErrors(true),
		// The answer is read as it is: converting a document to JSON first costs more than
		// evaluating it, and has no bound for one that shares its parts.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	)
	return rego.New(options...).PrepareForEval(ctx)
}
