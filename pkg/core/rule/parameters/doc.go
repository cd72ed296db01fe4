// Package parameters validates the parameters of reusable policies: whether the schema of a
// PodTransitionPolicy can be used, whether the parameters of a rule fit it, and which types the
// compiler of the policy's module gets. It is pure and bounded: a schema in bytes, depth and nodes,
// parameters in bytes, also after defaults were filled in, and the work of validating one against
// the other.
package parameters

// Bounds of users' input.
const (
	// MaxSchemaBytes bounds spec.parameters.openAPIV3Schema.
	MaxSchemaBytes = 32 << 10

	// MaxBytes bounds rego.parameters, before and after the defaults are filled in.
	MaxBytes = 32 << 10

	// maxErrors bounds the reported errors. One value may have thousands.
	maxErrors = 10

	// maxDepth bounds the nesting of schemas.
	maxDepth = 24

	// maxWork bounds the nodes of a schema times the values validated against it. A node takes 3 to
	// 9 µs for a value, so this is about half a second.
	maxWork = 1 << 16

	// maxPatterns bounds the size of all patterns in a schema together, as patternSize counts it.
	// Matching takes at most that times the bytes of the parameters: half a second.
	maxPatterns = 4096
)
