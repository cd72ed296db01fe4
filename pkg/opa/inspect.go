package opa

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Needs lists the parts of the environment (rule.Environment) that a module reads on any path. A
// module that reads the input as a whole needs all of them.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace bool
}

// Inspection is the result of Inspect.
type Inspection struct {
	// Entry is the rule that decides.
	Entry spec.Entry

	Needs Needs
}

// Inspect checks a user's module: its size, package and entry point, its calls and references, and
// its types against the schema of the input, with the schema of the parameters for
// input.parameters. A module without errors can be prepared.
//
// The error is a *CompileError if the module is wrong. ctx is passed to Options.Precompile and ends
// the wait for the compiler of this process; it does not interrupt the compiler.
func (e *Engine) Inspect(ctx context.Context, source Source) (found Inspection, err error) {
	defer func() {
		if value := recover(); value != nil {
			found, err = Inspection{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("inspecting a module: %w", err)
		}
	}()
	key := compiledKey{kind: rule.KindRego, module: source.Module, schema: string(source.ParametersSchema)}
	made, err := e.infoOf(ctx, source.Owner, key)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Entry: made.entry, Needs: made.needs}, nil
}

// IsCompiled reports whether Inspect and Prepare find a module compiled already.
func (e *Engine) IsCompiled(source string, parametersSchema json.RawMessage) bool {
	return e.infos.get(compiledKey{kind: rule.KindRego, module: source, schema: string(parametersSchema)}.hash()) != nil
}

// schemasWith returns the schema of the input with the schema of the parameters in it, which is
// JSON or empty.
func (e *Engine) schemasWith(parameters string) (*ast.SchemaSet, error) {
	schema := e.schema
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

// needsOf returns the needs of a compiled module, in which no import or local name hides the input.
func needsOf(module *ast.Module) Needs {
	needs := Needs{}
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if !ref[0].Equal(ast.InputRootDocument) {
			return false
		}
		if len(ref) == 1 {
			needs = all()
			return false
		}
		name, ok := ref[1].Value.(ast.String)
		if !ok {
			needs = all()
			return false
		}
		needs.Counts = needs.Counts || name == "counts"
		needs.Now = needs.Now || name == "now"
		needs.Pods = needs.Pods || name == "pods"
		needs.Permits = needs.Permits || name == "permits"
		needs.Namespace = needs.Namespace || name == "namespace"
		return false
	})
	return needs
}

func all() Needs {
	return Needs{Counts: true, Now: true, Pods: true, Permits: true, Namespace: true}
}
