package opa

import (
	"context"
	"encoding/json"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
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
	made := &compiled{moduleInfo: &moduleInfo{source: "source of " + source}, query: query}
	if module.Custom != nil {
		made.Entry, made.Needs = module.Custom.Entry, vet.Needs{}.All()
		e.memory.Add(module.Owner(), programKey(made.source), made, 0)
	}
	return e.program(module, made.moduleInfo, made)
}

// SameProgram reports whether two rules share a program.
func SameProgram(a, b *Program) bool { return a.info == b.info }

// PodTerms returns new documents of pods as users' modules read them.
func PodTerms(e *Engine, pods []*rule.PodFact, details bool) []*ast.Term {
	terms := make([]*ast.Term, 0, len(pods))
	for _, pod := range pods {
		terms = append(terms, customPod(pod, details))
	}
	return terms
}

// CustomInput returns the input of a user's module that reads all of it.
func CustomInput(e *Engine, literal, parameters json.RawMessage, from rule.Environment, request rule.Request) (*ast.Term, error) {
	read, err := e.documents("", literal, parameters)
	if err != nil {
		return nil, err
	}
	env := e.terms.env(from, Needs{Now: true, Namespace: true, Counts: true, Pods: true, Permits: true})
	return ast.NewTerm(e.terms.customInput(read.rule, read.parameters, env, request)), nil
}

// PodBytes returns the bytes that such a document is charged.
func PodBytes(pod *rule.PodFact, details bool) int64 { return podBytes(pod, details) }
