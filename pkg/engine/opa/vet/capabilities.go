package vet

import (
	"bytes"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/policies"
)

// Capabilities returns the parts of Rego that a module may use: the builtins of
// policies/capabilities.json, which "opa check" and "opa test" take too, and no network for the
// compiler. If the file cannot be read, no builtin is allowed, and no module compiles.
func Capabilities() *ast.Capabilities {
	allowed, err := ast.LoadCapabilitiesJSON(bytes.NewReader(policies.Capabilities()))
	if err != nil {
		allowed = &ast.Capabilities{}
	}
	// An empty list allows no host; nil would allow all of them.
	if allowed.AllowNet == nil {
		allowed.AllowNet = []string{}
	}
	return allowed
}
