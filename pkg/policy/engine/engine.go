package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"k8s.io/utils/lru"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/policies"
)

// moduleFile is the name under which the module of a rule is compiled. No library file is at the
// root, so the two cannot collide.
const moduleFile = "rule.rego"

// Defaults of Options.
const (
	// defaultTimeout is generous: a batch takes tens of milliseconds on a slow machine.
	defaultTimeout = time.Second

	// defaultPrograms bounds the cache to about 100 MiB, at 200 KB a program.
	defaultPrograms = 512

	// defaultFacts bounds the cache to about 40 MiB.
	defaultFacts = 20000
)

// Options of an Engine. Fields that are zero take their defaults.
type Options struct {
	// Timeout of one batch of an Evaluate, which is up to 256 requests. Default: 1 s.
	Timeout time.Duration

	// Programs is how many programs Prepare remembers. A caller that holds on to its programs keeps
	// them beyond that. Default: 512.
	Programs int

	// Facts is how many pods are remembered in the form that Rego reads, over all programs.
	// Default: 20000.
	Facts int
}

// Engine prepares rules for evaluation. It is safe for concurrent use.
type Engine struct {
	timeout      time.Duration
	capabilities *ast.Capabilities
	library      *library
	facts        *facts

	// programs holds *Program by programKey.
	programs *lru.Cache
}

// programKey is all that a program is made from.
type programKey struct {
	id          policy.RuleID
	kind        policy.Kind
	stage       appsv1alpha1.TransitionStage
	enforcement appsv1alpha1.Enforcement
	source      [sha256.Size]byte
}

// New returns an Engine over the Rego library that is part of the binary.
func New(options Options) (*Engine, error) {
	allowed := capabilities()
	parsed, err := parseLibrary(policies.Library(), ast.ParserOptions{Capabilities: allowed})
	if err != nil {
		return nil, err
	}
	return &Engine{
		timeout:      cmp.Or(options.Timeout, defaultTimeout),
		capabilities: allowed,
		library:      parsed,
		facts:        newFacts(cmp.Or(options.Facts, defaultFacts)),
		programs:     lru.New(cmp.Or(options.Programs, defaultPrograms)),
	}, nil
}

// Prepare compiles a module, or returns the program of an earlier call with the same module. A
// module that does not compile is a *CompileError; ctx does not interrupt the compiler. Two calls
// at the same time may both compile, which costs time and nothing else.
func (e *Engine) Prepare(ctx context.Context, module compile.Module) (program *Program, err error) {
	defer func() {
		if value := recover(); value != nil {
			program, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("preparing rule %q: %w", module.ID, err)
		}
	}()
	key := programKey{
		id: module.ID, kind: module.Kind, stage: module.Stage, enforcement: module.Enforcement,
		source: sha256.Sum256([]byte(module.Source)),
	}
	if known, ok := e.programs.Get(key); ok {
		return known.(*Program), nil
	}
	query, err := e.compile(ctx, module.Source)
	if err != nil {
		return nil, compileError(err)
	}
	program = &Program{
		id: module.ID, kind: module.Kind, stage: module.Stage, enforcement: module.Enforcement,
		source: hex.EncodeToString(key.source[:]), query: query, facts: e.facts, timeout: e.timeout,
	}
	e.programs.Add(key, program)
	return program, nil
}

// compile returns the prepared query for the decision of a module.
func (e *Engine) compile(ctx context.Context, source string) (rego.PreparedEvalQuery, error) {
	none := rego.PreparedEvalQuery{}
	module, err := ast.ParseModuleWithOpts(moduleFile, source, ast.ParserOptions{Capabilities: e.capabilities})
	if err != nil {
		return none, err
	}
	// A module in a package of the library would change what the library says.
	if root := ast.MustParseRef("data.podops.compiled"); !module.Package.Path.HasPrefix(root) {
		return none, fmt.Errorf("the package of a rule is below %v, not %v", root, module.Package.Path)
	}
	modules := e.library.needed(module)
	modules[moduleFile] = module
	compiler := ast.NewCompiler().WithStrict(true).WithCapabilities(e.capabilities)
	if compiler.Compile(modules); compiler.Failed() {
		return none, compiler.Errors
	}
	entry := module.Package.Path.Append(ast.StringTerm("decision"))
	return rego.New(
		rego.Compiler(compiler),
		rego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(entry)))),
		rego.StrictBuiltinErrors(true),
		// The decision is read as it is: converting a document to JSON first costs more than
		// evaluating it, and has no bound for one that shares its parts.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(ctx)
}
