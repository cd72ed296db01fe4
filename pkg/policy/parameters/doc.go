// Package parameters judges the parameters of reusable policies: whether the schema of a
// PodTransitionPolicy can be used, whether what a rule gives fits it, and what the
// compiler of the policy's module may know of it. It is pure, and everything in it is
// bounded: a schema in bytes, depth and nodes, parameters in bytes, also after defaults
// have been filled in, and the work of validating one against the other.
package parameters

// Bounds of what a user gives.
const (
	// MaxSchemaBytes bounds spec.parameters.openAPIV3Schema.
	MaxSchemaBytes = 32 << 10

	// MaxBytes bounds rego.parameters, before and after the defaults are filled in.
	MaxBytes = 32 << 10

	// maxDepth bounds how deep schemas nest.
	maxDepth = 24

	// maxWork bounds the nodes of a schema times the values validated against it: about
	// one second on a slow machine when each value meets each node.
	maxWork = 1 << 20
)
