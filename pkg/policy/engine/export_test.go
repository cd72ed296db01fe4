package engine

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/podops-dev/podops/pkg/policy/compile"
)

// PrepareSource is Prepare with the readable source of the module as it stands, in place of the
// program that its kind shares.
func (e *Engine) PrepareSource(ctx context.Context, module compile.Module) (*Program, error) {
	asks, err := e.parse(entryFile, module.Source)
	if err != nil {
		return nil, compileError(err)
	}
	modules := e.library.needed(asks)
	if module.Custom != nil {
		user, err := e.parse(moduleFile, module.Custom.Source)
		if err != nil {
			return nil, compileError(err)
		}
		if modules[moduleFile], err = moved(user); err != nil {
			return nil, err
		}
	}
	modules[entryFile] = asks
	compiler := ast.NewCompiler()
	if err := e.compile(compiler, modules); err != nil {
		return nil, compileError(err)
	}
	query, err := prepareQuery(ctx, compiler, asks.Package.Path.Append(ast.StringTerm("decision")))
	if err != nil {
		return nil, err
	}
	made := &shape{source: "source", query: query}
	if module.Custom != nil {
		made.entry, made.needs = module.Custom.Entry, all()
	}
	return e.program(module, made)
}

// SameProgram says whether two rules share what was compiled.
func SameProgram(a, b *Program) bool { return a.shape == b.shape }

// PrepareStuck is a rule whose module waits for a channel, as OPA does in the midst of a comparison of
// two huge documents: nothing interrupts it. A pod without the label "stuck" is not waited for.
func (e *Engine) PrepareStuck(ctx context.Context, module compile.Module, release <-chan struct{}) (*Program, error) {
	program, err := e.Prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	asks := ast.MustParseModule(`package podops.entry
decision := data.podops.rules.custom.decision(input, input.rule, "allow")`)
	user := ast.MustParseModule("package rule\nallow if not input.pod.labels.stuck\nallow if test.wait()")
	modules := e.library.needed(asks)
	modules[moduleFile], modules[entryFile] = user, asks
	wait := &ast.Builtin{Name: "test.wait", Decl: types.NewFunction(nil, types.B)}
	allowed := capabilities()
	allowed.Builtins = append(allowed.Builtins, wait)
	compiler := ast.NewCompiler().WithCapabilities(allowed)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, compiler.Errors
	}
	query, err := rego.New(
		rego.Compiler(compiler), rego.Query("data.podops.entry.decision"),
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
		rego.FunctionDyn(&rego.Function{Name: wait.Name, Decl: wait.Decl},
			func(topdown.BuiltinContext, []*ast.Term) (*ast.Term, error) {
				<-release
				return ast.InternedTerm(true), nil
			}),
	).PrepareForEval(ctx)
	program.shape = &shape{source: "stuck", query: query, entry: compile.EntryAllow}
	return program, err
}
