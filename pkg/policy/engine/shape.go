package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	query rego.PreparedEvalQuery

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
	case policy.KindAvailablePolicy, policy.KindLabelCheck:
		asks, err := e.parse(entryFile, entrySource(compile.Library(key.kind), ""))
		if err != nil {
			return nil, err
		}
		query, err := e.compile(ctx, asks, e.library.needed(asks), ast.NewCompiler(), nil)
		return &shape{query: query, needs: Needs{Counts: key.kind == policy.KindAvailablePolicy}}, err
	case policy.KindRego:
		return e.customShape(ctx, key)
	default:
		return nil, fmt.Errorf("rules of kind %q cannot be evaluated", key.kind)
	}
}

// customShape compiles the module of a user together with the library.
func (e *Engine) customShape(ctx context.Context, key shapeKey) (*shape, error) {
	if err := checkSize(key.module); err != nil {
		return nil, err
	}
	if e.options.Precompile != nil {
		if err := e.options.Precompile(ctx, key.module, json.RawMessage(key.schema)); err != nil {
			return nil, err
		}
	}
	module, err := e.parse(moduleFile, key.module)
	if err != nil {
		return nil, err
	}
	entry, err := checkContract(module)
	if err != nil {
		return nil, err
	}
	if module, err = moved(module); err != nil {
		return nil, err
	}
	schemas, err := e.schemasWith(key.schema)
	if err != nil {
		return nil, err
	}
	asks, err := e.parse(entryFile, entrySource(compile.Library(key.kind), entry))
	if err != nil {
		return nil, err
	}
	modules := e.library.needed(asks)
	modules[moduleFile] = module
	compiler := withBoundsStage(withWeightStage(ast.NewCompiler().WithSchemas(schemas)))
	query, err := e.compile(ctx, asks, modules, compiler, boundedBuiltins())
	if err != nil {
		return nil, err
	}
	compiled := compiler.Modules[moduleFile]
	if err := checkCompiled(compiled); err != nil {
		return nil, err
	}
	if err := checkAnswers(compiler, compiled, entry); err != nil {
		return nil, err
	}
	return &shape{query: query, entry: entry, needs: needsOf(compiled)}, nil
}

// entrySource is the module that asks a package of the library: the shared form of what
// compile.Rule writes for people, with the literal in the input. entry is that of a user's module,
// and empty for built-in kinds.
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

// compile returns the prepared query for the decision of the module asks, among other modules that
// it needs, with more builtins than OPA has.
func (e *Engine) compile(
	ctx context.Context, asks *ast.Module, modules map[string]*ast.Module, compiler *ast.Compiler, builtins []func(*rego.Rego),
) (rego.PreparedEvalQuery, error) {
	modules[entryFile] = asks
	compiler = compiler.WithStrict(true).WithCapabilities(e.capabilities)
	if compiler.Compile(modules); compiler.Failed() {
		return rego.PreparedEvalQuery{}, compiler.Errors
	}
	entry := asks.Package.Path.Append(ast.StringTerm("decision"))
	options := append(slices.Clone(builtins),
		rego.Compiler(compiler),
		rego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(entry)))),
		rego.StrictBuiltinErrors(true),
		// The decision is read as it is: converting a document to JSON first costs more than
		// evaluating it, and has no bound for one that shares its parts.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	)
	return rego.New(options...).PrepareForEval(ctx)
}
