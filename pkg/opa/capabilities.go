package opa

import (
	"bytes"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/policies"
)

// capabilities are what a module may use: the builtins of policies/capabilities.json, and no
// network for the compiler. It is the file that "opa check" and "opa test" take. Of a file that
// cannot be read nothing is left, and no module compiles.
func capabilities() *ast.Capabilities {
	allowed, err := ast.LoadCapabilitiesJSON(bytes.NewReader(policies.Capabilities()))
	if err != nil {
		allowed = &ast.Capabilities{}
	}
	// Empty is "nowhere"; nil would be "anywhere".
	if allowed.AllowNet == nil {
		allowed.AllowNet = []string{}
	}
	return allowed
}
