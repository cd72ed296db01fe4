package vet

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Needs lists the parts of the environment (rule.Environment) that a module reads on any path. A
// module that reads the input as a whole needs all of them.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace, Owner bool

	// Details are the fields of pods in DetailFields. A module that reads the input as a whole needs them if it names one.
	Details bool
}

// DetailFields returns the fields that pods have only for modules that name one of them.
func DetailFields() []string {
	return []string{"images", "resources", "restarts", "conditions", "started", "ready_since"}
}

// NeedsOf returns the needs of a compiled module, in which no import or local name hides the input.
func NeedsOf(module *ast.Module) Needs {
	needs := Needs{Details: namesDetail(module)}
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if !ref[0].Equal(ast.InputRootDocument) {
			return false
		}
		if len(ref) == 1 {
			needs = needs.All()
			return false
		}
		name, ok := ref[1].Value.(ast.String)
		if !ok {
			needs = needs.All()
			return false
		}
		needs.Counts = needs.Counts || name == "counts"
		needs.Now = needs.Now || name == "now"
		needs.Pods = needs.Pods || name == "pods"
		needs.Permits = needs.Permits || name == "permits"
		needs.Namespace = needs.Namespace || name == "namespace"
		needs.Owner = needs.Owner || name == "owner"
		return false
	})
	return needs
}

// All returns the needs of a module that reads the input as a whole, and names a detail if n does.
func (n Needs) All() Needs {
	return Needs{Counts: true, Now: true, Pods: true, Permits: true, Namespace: true, Owner: true, Details: n.Details}
}

// namesDetail reports whether a module names one of DetailFields as a constant, other than in input.rule.
func namesDetail(module *ast.Module) bool {
	found := false
	ast.WalkTerms(module, func(term *ast.Term) bool {
		switch value := term.Value.(type) {
		case ast.Ref:
			return value.HasPrefix(ast.Ref{ast.InputRootDocument, ast.StringTerm("rule")})
		case ast.String:
			found = found || slices.Contains(DetailFields(), string(value))
		}
		return found
	})
	return found
}
