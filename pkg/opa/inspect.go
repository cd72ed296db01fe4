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

// Needs are the surroundings that a module reads (rule.Environment), found in its text: a module
// that reads them on some path needs them, and one that reads the input as a whole needs them all.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace bool
}

// Inspection is what the text of a user's module tells.
type Inspection struct {
	// Entry is the rule that is asked.
	Entry spec.Entry

	Needs Needs
}

// Inspect checks the module of a user: its size, package and entry point, what it calls and refers
// to, and its types, against the schema of the input with that of the parameters in the place of
// input.parameters. A module without errors can be prepared.
//
// The error is a *CompileError when the module is wrong. ctx reaches Options.Precompile and ends the
// wait for the compiler of this process; it does not interrupt it.
func (e *Engine) Inspect(ctx context.Context, source Source) (found Inspection, err error) {
	defer func() {
		if value := recover(); value != nil {
			found, err = Inspection{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("inspecting a module: %w", err)
		}
	}()
	key := shapeKey{kind: rule.KindRego, module: source.Module, schema: string(source.ParametersSchema)}
	made, err := e.shapeOf(ctx, source.Owner, key)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Entry: made.entry, Needs: made.needs}, nil
}

// IsCompiled reports whether Inspect and Prepare need not compile a module.
func (e *Engine) IsCompiled(source string, parametersSchema json.RawMessage) bool {
	return e.shapes.get(shapeKey{kind: rule.KindRego, module: source, schema: string(parametersSchema)}.hash()) != nil
}

// schemasWith is the schema of the input with one for the parameters, which is JSON or empty.
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

// needsOf a compiled module: no import or local name hides the input any more.
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
