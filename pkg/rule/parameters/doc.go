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

	// maxErrors is how many errors are reported. One value may have thousands.
	maxErrors = 10

	// maxDepth bounds how deep schemas nest.
	maxDepth = 24

	// maxWork bounds the nodes of a schema times the values validated against it. A node
	// was seen to take 3 to 9 µs for a value, so this is about half a second.
	maxWork = 1 << 16

	// maxPatterns bounds the size of all patterns of a schema together, as patternSize
	// counts it. Matching takes at most that times the bytes of the parameters: half a
	// second.
	maxPatterns = 4096
)
