package engine

import (
	"github.com/podops-dev/podops/pkg/policy/compile"
)

// Needs are the surroundings that a module reads (policy.Surroundings), found in its text: a module
// that reads them on some path needs them.
type Needs struct {
	Counts, Now, Pods, Permits, Namespace bool
}

// Inspection is what the text of a user's module tells.
type Inspection struct {
	// Entry is the rule that is asked.
	Entry compile.Entry

	Needs Needs
}
