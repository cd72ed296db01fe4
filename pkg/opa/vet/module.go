package vet

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule/spec"
)

// File is the name under which a user's module is compiled. No library file is at the root, so the
// two cannot collide.
const File = "rule.rego"

// Read parses a user's module, checks its form, and moves it to package rule.
func Read(source string, capabilities *ast.Capabilities) (*ast.Module, spec.Entry, error) {
	module, err := ast.ParseModuleWithOpts(File, source, ast.ParserOptions{Capabilities: capabilities})
	if err != nil {
		return nil, "", err
	}
	entry, err := checkContract(module)
	if err != nil {
		return nil, "", err
	}
	module.Comments = nil // the compiled program would hold them
	module, err = Moved(module)
	return module, entry, err
}

// Check returns the compiled module, and rejects it if its references or types break the contract.
func Check(compiler *ast.Compiler, entry spec.Entry) (*ast.Module, error) {
	module := compiler.Modules[File]
	if err := checkCompiled(module); err != nil {
		return nil, err
	}
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
