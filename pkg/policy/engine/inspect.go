package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
)

// Needs are the surroundings that a module reads (policy.Surroundings), found in its text: a module
// that reads them on some path needs them, and one that reads the input as a whole needs them all.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace bool
}

// Inspection is what the text of a user's module tells.
type Inspection struct {
	// Entry is the rule that is asked.
	Entry compile.Entry

	Needs Needs
}

// Inspect checks the module of a user: its size, package and entry point, what it calls and refers
// to, and its types, against the schema of the input with parametersSchema (a JSON schema; nil
// leaves them open) in the place of input.parameters. A module without errors can be prepared.
//
// The error is a *CompileError when the module is wrong. ctx reaches Options.Precompile; it does not
// interrupt the compiler of this process.
func (e *Engine) Inspect(ctx context.Context, source string, parametersSchema json.RawMessage) (found Inspection, err error) {
	defer func() {
		if value := recover(); value != nil {
			found, err = Inspection{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("inspecting a module: %w", err)
		}
	}()
	made, err := e.shapeOf(ctx, shapeKey{kind: policy.KindRego, module: source, schema: string(parametersSchema)})
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{Entry: made.entry, Needs: made.needs}, nil
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
