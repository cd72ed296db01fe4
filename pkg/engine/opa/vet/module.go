package vet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// File is the name under which a user's module is compiled. No library file is at the root, so the
// two cannot collide.
const File = "rule.rego"

// Read parses a user's module and what it imports, as spec.Join joins them, checks their form, and moves the module to
// package rule. The modules have File, and the files of the parts, as keys, and their comments.
func Read(source string, capabilities *ast.Capabilities) (map[string]*ast.Module, spec.Entry, error) {
	modules, err := parse(source, capabilities)
	if err != nil {
		return nil, "", err
	}
	imported := packages{}
	for file, module := range modules {
		if err := checkPackage(file, module); err != nil {
			return nil, "", err
		}
		if file != File {
			imported = append(imported, module)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		if err := checkForm(modules[file], imported); err != nil {
			return nil, "", err
		}
	}
	entry, err := findEntry(modules[File])
	if err != nil {
		return nil, "", err
	}
	modules[File], err = Moved(modules[File])
	return modules, entry, err
}

// Imports are the PodTransitionPolicies that a module refers to.
type Imports struct {
	// Library is the policy whose library the module is; empty for any other module.
	Library string

	// Names are the policies of its references to data.lib.<name> and data.config.<name>, sorted.
	Names []string
}

// ReadImports returns the imports of a module that can be parsed.
func ReadImports(source string) (Imports, error) {
	modules, err := parse(source, Capabilities())
	if err != nil {
		return Imports{}, AsCompileError(err)
	}
	var found Imports
	if path := modules[File].Package.Path; isShared(path) {
		found.Library = sharedName(path)
	}
	ast.WalkRefs(modules[File], func(ref ast.Ref) bool {
		if isShared(ref) && sharedName(ref) != found.Library {
			found.Names = append(found.Names, sharedName(ref))
		}
		return false
	})
	slices.Sort(found.Names)
	found.Names = slices.Compact(found.Names)
	return found, nil
}

// parse parses a user's module and what it imports.
func parse(source string, capabilities *ast.Capabilities) (map[string]*ast.Module, error) {
	module, parts := spec.Split(source)
	modules := map[string]*ast.Module{}
	for _, part := range append([]spec.Part{{File: File, Source: module}}, parts...) {
		if _, twice := modules[part.File]; twice {
			return nil, contractError(nil, "%s is imported twice", part.File)
		}
		parsed, err := ast.ParseModuleWithOpts(part.File, part.Source, ast.ParserOptions{Capabilities: capabilities})
		if err != nil {
			return nil, err
		}
		modules[part.File] = parsed
	}
	return modules, nil
}

// Check returns the compiled module, and rejects it if its references or types, or those of a module that it imports, break the
// contract.
func Check(compiler *ast.Compiler, entry spec.Entry) (*ast.Module, error) {
	imported := packages{}
	for file, module := range compiler.Modules {
		if file != File {
			imported = append(imported, module)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(compiler.Modules)) {
		if err := checkCompiled(compiler.Modules[file], imported); err != nil {
			return nil, err
		}
	}
	module := compiler.Modules[File]
	return module, checkAnswers(compiler, module, entry)
}

// Schemas returns the schema of the input with the schema of the parameters in it, which is
// JSON or empty.
func Schemas(input map[string]any, parameters string) (*ast.SchemaSet, error) {
	schema := input
	if parameters != "" {
		decoded := map[string]any{}
		if err := json.Unmarshal([]byte(parameters), &decoded); err != nil {
			return nil, fmt.Errorf("reading the schema of the parameters: %w", err)
		}
		properties, _ := schema["properties"].(map[string]any)
		properties = maps.Clone(properties)
		properties["parameters"] = decoded
		schema = maps.Clone(schema)
		schema["properties"] = properties
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema)
	return set, nil
}
