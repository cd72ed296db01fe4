package opa

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// entryFile is the name of the module that calls the library.
const entryFile = "entry.rego"

// moduleInfo is the part of a compiled program that stays in memory while a rule uses it: all that rules
// with different literals and parameters share, except for the queries.
type moduleInfo struct {
	key compiledKey

	// source is the hash of the key, in hex.
	source string

	Inspection
}

// compiled is the compiled program of a moduleInfo.
type compiled struct {
	*moduleInfo

	// missingReason explains a denial without a reason; zero for built-in kinds. It refers to terms of
	// the module, so it is evicted with them.
	missingReason missingReason

	// query evaluates the decision.
	query rego.PreparedEvalQuery

	// rules evaluate the rules of a user's module that the decision may read, by name; nil for
	// built-in kinds.
	rules map[string]rego.PreparedEvalQuery
}

// compiledKey has everything that a compiled program is made from.
type compiledKey struct {
	kind rule.Kind

	// module is the user's module, and schema the JSON schema of its parameters; empty for built-in
	// kinds.
	module, schema string
}

func newCompiledKey(module spec.Module) compiledKey {
	if module.Custom == nil {
		return compiledKey{kind: module.Kind}
	}
	return compiledKey{kind: module.Kind, module: module.Custom.Source, schema: string(module.Custom.ParametersSchema)}
}

// hash returns a string that is unique to the key.
func (k compiledKey) hash() string {
	// The lengths separate the parts.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d\n%s%s", k.kind, len(k.module), len(k.schema), k.module, k.schema))
	return hex.EncodeToString(sum[:])
}

// compiledBuiltIn returns the program of a built-in kind, which is compiled for the first rule of the
// kind and never evicted.
func (e *Engine) compiledBuiltIn(ctx context.Context, kind rule.Kind) (*compiled, error) {
	e.libraryMu.Lock()
	defer e.libraryMu.Unlock()
	if known, ok := e.builtIn[kind]; ok {
		return known, nil
	}
	switch kind {
	case rule.KindAvailablePolicy, rule.KindLabelCheck, rule.KindApproval, rule.KindWebhook:
	default:
		return nil, fmt.Errorf("rules of kind %q cannot be evaluated", kind)
	}
	query, err := e.libraryQuery(ctx, spec.Library(kind), "")
	if err != nil {
		return nil, err
	}
	key := compiledKey{kind: kind}
	made := &compiled{query: query, moduleInfo: &moduleInfo{
		key: key, source: key.hash(), Inspection: Inspection{Needs: Needs{Counts: kind == rule.KindAvailablePolicy}},
	}}
	e.compilations.Add(1)
	e.builtIn[kind] = made
	return made, nil
}

// libraryQuery compiles a package of the library, and returns the query for the decision of a rule
// whose literal is in the input. entry is the entry point of a user's module, and empty for
// built-in kinds.
func (e *Engine) libraryQuery(ctx context.Context, library string, entry spec.Entry) (rego.PreparedEvalQuery, error) {
	entryModule, err := e.parse(entryFile, entrySource(library, entry))
	if err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	modules := e.library.needed(entryModule)
	modules[entryFile] = entryModule
	compiler := ast.NewCompiler()
	if err := e.compile(compiler, modules); err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	return prepareQuery(ctx, compiler, entryModule.Package.Path.Append(ast.StringTerm("decision")), rego.Store(userRules{}))
}

// entrySource returns the module that calls a package of the library: the shared form of the module
// that spec.Rule renders, with the literal in the input.
func entrySource(library string, entry spec.Entry) string {
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

// compile compiles modules, and returns the errors of the compiler.
func (e *Engine) compile(compiler *ast.Compiler, modules map[string]*ast.Module) error {
	compiler = compiler.WithStrict(true).WithCapabilities(e.capabilities)
	if compiler.Compile(modules); compiler.Failed() {
		return compiler.Errors
	}
	for _, module := range compiler.Modules {
		sortKeys(module)
	}
	return nil
}

// prepareQuery returns the query for one document.
func prepareQuery(
	ctx context.Context, compiler *ast.Compiler, document ast.Ref, options ...func(*rego.Rego),
) (rego.PreparedEvalQuery, error) {
	options = append(slices.Clone(options),
		rego.Compiler(compiler),
		rego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(document)))),
		rego.StrictBuiltinErrors(true),
		// The decision is read as terms: converting a document to JSON first costs more than
		// evaluating it, and has no bound for a document that shares its parts.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	)
	return rego.New(options...).PrepareForEval(ctx)
}
