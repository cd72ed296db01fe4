package opa

import (
	"context"
	"encoding/json"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/podops-dev/podops/pkg/opa/vet"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// PrepareSource is Prepare with the readable source of the module, in place of the program that its
// kind shares.
func (e *Engine) PrepareSource(ctx context.Context, module spec.Module, source string) (*Program, error) {
	entryModule, err := e.parse(entryFile, source)
	if err != nil {
		return nil, vet.AsCompileError(err)
	}
	modules := e.library.needed(entryModule)
	if module.Custom != nil {
		user, err := e.parse(vet.File, module.Custom.Source)
		if err != nil {
			return nil, vet.AsCompileError(err)
		}
		if modules[vet.File], err = vet.Moved(user); err != nil {
			return nil, err
		}
	}
	modules[entryFile] = entryModule
	compiler := ast.NewCompiler()
	if err := e.compile(compiler, modules); err != nil {
		return nil, vet.AsCompileError(err)
	}
	query, err := prepareQuery(ctx, compiler, entryModule.Package.Path.Append(ast.StringTerm("decision")))
	if err != nil {
		return nil, err
	}
	made := &compiled{moduleInfo: &moduleInfo{source: "source"}, query: query}
	if module.Custom != nil {
		made.entry, made.needs = module.Custom.Entry, vet.AllNeeds()
	}
	return e.program(module, made.moduleInfo, made)
}

// SameProgram reports whether two rules share a program.
func SameProgram(a, b *Program) bool { return a.info == b.info }

// PrepareStuck returns a rule whose module computes until a channel is closed, as OPA does during a
// comparison of two huge documents, which nothing interrupts. A pod without the label "stuck" ends
// at once.
func (e *Engine) PrepareStuck(ctx context.Context, module spec.Module, release <-chan struct{}) (*Program, error) {
	return e.PrepareStuckAfter(ctx, module, func() {}, release)
}

// PrepareStuckAfter is like PrepareStuck, and calls begun before the module computes.
func (e *Engine) PrepareStuckAfter(ctx context.Context, module spec.Module, begun func(), release <-chan struct{}) (*Program, error) {
	return e.prepareWaiting(ctx, module, func() {
		begun()
		for !isClosed(release) {
		}
	})
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// PrepareStarved is like PrepareStuck, but uses no CPU time, as on a machine that has none.
func (e *Engine) PrepareStarved(ctx context.Context, module spec.Module, release <-chan struct{}) (*Program, error) {
	return e.prepareWaiting(ctx, module, func() { <-release })
}

func (e *Engine) prepareWaiting(ctx context.Context, module spec.Module, waits func()) (*Program, error) {
	program, err := e.Prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	entryModule := ast.MustParseModule(`package podops.entry
decision := data.podops.rules.custom.decision(input, input.rule, "allow")`)
	user := ast.MustParseModule("package rule\nallow if not input.pod.labels.stuck\nallow if test.wait()")
	modules := e.library.needed(entryModule)
	modules[vet.File], modules[entryFile] = user, entryModule
	wait := &ast.Builtin{Name: "test.wait", Decl: types.NewFunction(nil, types.B)}
	allowed := vet.Capabilities()
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
				waits()
				return ast.InternedTerm(true), nil
			}),
	).PrepareForEval(ctx)
	program.info = &moduleInfo{source: "stuck", entry: spec.EntryAllow}
	program.pinned = &compiled{moduleInfo: program.info, query: query}
	return program, err
}

// PodTerms returns new documents of pods as users' modules read them.
func PodTerms(e *Engine, pods []*rule.PodFact) []*ast.Term {
	terms := make([]*ast.Term, 0, len(pods))
	for _, pod := range pods {
		terms = append(terms, e.terms.customPod(pod))
	}
	return terms
}

// CustomInput returns the input of a user's module that reads all of it.
func CustomInput(e *Engine, literal, parameters json.RawMessage, from rule.Environment, request rule.Request) (*ast.Term, error) {
	read, err := (&Program{engine: e, literal: literal, parameters: parameters}).documents()
	if err != nil {
		return nil, err
	}
	env := e.terms.env(from, Needs{Now: true, Namespace: true, Counts: true, Pods: true, Permits: true})
	return ast.NewTerm(e.terms.customInput(read.rule, read.parameters, env, request)), nil
}

// PodBytes returns the bytes that such a document is charged.
func PodBytes(pod *rule.PodFact) int64 { return podBytes(pod, true) }
