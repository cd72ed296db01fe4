package opa

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/open-policy-agent/opa/v1/ast"
)

// library is the parsed Rego library. It is never modified once parsed: the compiler copies.
type library struct {
	// modules by file name.
	modules map[string]*ast.Module

	// files by package, as a ref prints.
	files map[string]string
}

// parseLibrary reads every Rego file of a tree. A package is one file.
func parseLibrary(tree fs.FS, options ast.ParserOptions) (*library, error) {
	parsed := &library{modules: map[string]*ast.Module{}, files: map[string]string{}}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".rego" {
			return err
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		module, err := ast.ParseModuleWithOpts(name, string(source), options)
		if err != nil {
			return err
		}
		parsed.modules[name] = module
		parsed.files[module.Package.Path.String()] = name
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parsing library: %w", err)
	}
	return parsed, nil
}

// needed are the library modules that a module refers to, directly or through others, by file
// name. Leaving out the rest makes a program smaller and faster to compile.
func (l *library) needed(module *ast.Module) map[string]*ast.Module {
	found := map[string]*ast.Module{}
	l.collect(module, found)
	return found
}

func (l *library) collect(module *ast.Module, found map[string]*ast.Module) {
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		for end := 1; end <= len(ref); end++ {
			name, known := l.files[ref[:end].String()]
			if _, seen := found[name]; !known || seen {
				continue
			}
			found[name] = l.modules[name]
			l.collect(l.modules[name], found)
		}
		return false
	})
}
