package vet

import (
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// AbsentPermits is the comment by which a module states that a pod without a fact is meant to pass.
const AbsentPermits = "podops: absent=permits"

// Constants are the parts of a module from which inputs for it are made.
type Constants struct {
	// Keys are the constant keys of references, without those to input.parameters, and Strings all constant strings; sorted.
	Keys, Strings []string

	// Numbers are the constant numbers, as they are written.
	Numbers []string

	// AbsentPermits reports whether the module has the comment AbsentPermits.
	AbsentPermits bool
}

// ReadConstants returns the constants of a module that compiles, and of what it imports.
func ReadConstants(source string) (Constants, error) {
	modules, err := parse(source, Capabilities())
	if err != nil {
		return Constants{}, AsCompileError(err)
	}
	found := Constants{AbsentPermits: slices.ContainsFunc(modules[File].Comments, func(comment *ast.Comment) bool {
		return strings.TrimSpace(string(comment.Text)) == AbsentPermits
	})}
	parameters := ast.InputRootRef.Append(ast.StringTerm("parameters"))
	keys, texts, numbers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var collect func(part any)
	collect = func(part any) {
		ast.WalkTerms(part, func(term *ast.Term) bool {
			switch value := term.Value.(type) {
			case ast.String:
				texts[string(value)] = true
			case ast.Number:
				numbers[string(value)] = true
			case ast.Ref:
				collect(value[0]) // it may be a call
				for _, part := range value[1:] {
					if key, ok := part.Value.(ast.String); ok {
						keys[string(key)] = keys[string(key)] || !value.HasPrefix(parameters)
					} else {
						collect(part)
					}
				}
				return true
			}
			return false
		})
	}
	for _, module := range modules {
		collect(module)
	}
	maps.DeleteFunc(keys, func(_ string, isRead bool) bool { return !isRead })
	found.Keys, found.Strings, found.Numbers = slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(texts)), slices.Sorted(maps.Keys(numbers))
	return found, nil
}
