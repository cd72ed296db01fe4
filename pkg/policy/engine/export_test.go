package engine

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/policy/compile"
)

// PrepareSource is Prepare with the readable source of the module as it stands, in place of the
// program that its kind shares.
func (e *Engine) PrepareSource(ctx context.Context, module compile.Module) (*Program, error) {
	asks, err := e.parse(entryFile, module.Source)
	if err != nil {
		return nil, compileError(err)
	}
	modules, builtins := e.library.needed(asks), boundedBuiltins()
	if module.Custom != nil {
		user, err := e.parse(moduleFile, module.Custom.Source)
		if err != nil {
			return nil, compileError(err)
		}
		if modules[moduleFile], err = moved(user); err != nil {
			return nil, err
		}
	}
	query, err := e.compile(ctx, asks, modules, ast.NewCompiler(), builtins)
	if err != nil {
		return nil, compileError(err)
	}
	made := &shape{source: "source", query: query}
	if module.Custom != nil {
		made.entry, made.needs = module.Custom.Entry, all()
	}
	return e.program(module, made)
}

// SameProgram says whether two rules share what was compiled.
func SameProgram(a, b *Program) bool { return a.shape == b.shape }
