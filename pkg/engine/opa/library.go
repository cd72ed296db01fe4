package opa

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/open-policy-agent/opa/v1/ast"
)

// library is the parsed Rego library. It is not modified once parsed: the compiler copies it.
type library struct {
	// modules are the modules by file name.
	modules map[string]*ast.Module

	// files are the file names by package, as a ref prints.
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

// needed returns the library modules, by file name, that a module refers to directly or through
// others. A program without the other modules is smaller and compiles faster.
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
