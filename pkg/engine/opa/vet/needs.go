package vet

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Needs lists the parts of the environment (rule.Environment) that a module reads on any path. A
// module that reads the input as a whole needs all of them.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace, Owner, Node bool

	// Details are the fields of pods in DetailFields. A module that reads the input as a whole needs them if it names one.
	Details bool
}

// DetailFields returns the fields that pods have only for modules that name one of them.
func DetailFields() []string {
	return []string{"images", "resources", "restarts", "conditions", "started", "ready_since"}
}

// ReadNeeds returns the needs of compiled modules, in which no import or local name hides the input.
func ReadNeeds(modules ...*ast.Module) Needs {
	needs := Needs{Details: slices.ContainsFunc(modules, namesDetail)}
	for _, module := range modules {
		needs = needs.with(module)
	}
	return needs
}

// with returns the needs of a module besides others.
func (n Needs) with(module *ast.Module) Needs {
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		if !ref[0].Equal(ast.InputRootDocument) {
			return false
		}
		if len(ref) == 1 {
			n = n.All()
			return false
		}
		name, ok := ref[1].Value.(ast.String)
		if !ok {
			n = n.All()
			return false
		}
		n.Counts = n.Counts || name == "counts"
		n.Now = n.Now || name == "now"
		n.Pods = n.Pods || name == "pods"
		n.Permits = n.Permits || name == "permits"
		n.Namespace = n.Namespace || name == "namespace"
		n.Owner = n.Owner || name == "owner"
		n.Node = n.Node || name == "node"
		return false
	})
	return n
}

// All returns the needs of a module that reads the input as a whole, and names a detail if n does.
func (n Needs) All() Needs {
	return Needs{Counts: true, Now: true, Pods: true, Permits: true, Namespace: true, Owner: true, Node: true, Details: n.Details}
}

// namesDetail reports whether a module names one of DetailFields as a constant, other than in input.rule and input.node.
func namesDetail(module *ast.Module) bool {
	found := false
	ast.WalkTerms(module, func(term *ast.Term) bool {
		switch value := term.Value.(type) {
		case ast.Ref:
			return value.HasPrefix(ast.Ref{ast.InputRootDocument, ast.StringTerm("rule")}) ||
				value.HasPrefix(ast.Ref{ast.InputRootDocument, ast.StringTerm("node")})
		case ast.String:
			found = found || slices.Contains(DetailFields(), string(value))
		}
		return found
	})
	return found
}
