// Package decisionlog writes the inputs and outputs of the policy engine, one JSON document a
// line, so that a decision can be inspected, and repeated, later.
package decisionlog

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Record is one line of the log. It has either Module or Decision.
type Record struct {
	Time time.Time `json:"time"`

	// Module is the module of the decisions after this line. It is written before the first of
	// them.
	Module *Module `json:"module,omitempty"`

	Decision *Decision `json:"decision,omitempty"`
}

// traceIDBytes is the size of a trace id in memory.
const traceIDBytes = 48

// bytes returns the approximate size of a Record in memory.
func (r Record) bytes() int64 {
	bytes := lineBytes
	if r.Module != nil {
		bytes += len(r.Module.Compiled.Literal)
		if custom := r.Module.Compiled.Custom; custom != nil {
			bytes += len(custom.Source) + len(custom.ParametersSchema) + len(custom.Parameters)
		}
	}
	if r.Decision != nil {
		bytes += len(r.Decision.Input) + len(r.Decision.Output) + len(r.Decision.Error)
		bytes += len(r.Decision.TraceIDs) * traceIDBytes
	}
	return int64(bytes)
}

// namespace returns the namespace of a Record's rule.
func (r Record) namespace() string {
	if r.Module != nil {
		return r.Module.Compiled.ID.Ruleset.Namespace
	}
	namespace, _, _ := strings.Cut(r.Decision.Rule, "/")
	return namespace
}

// Module is one compiled rule.
type Module struct {
	// Hash of all fields below; decisions refer to the module by it.
	Hash string `json:"hash"`

	Compiled spec.Module `json:"compiled"`
}

// Decision is one evaluation.
type Decision struct {
	// ID is unique to the decision.
	ID string `json:"id,omitempty"`

	// Rule is "<namespace>/<PodTransitionRule>/<rule>".
	Rule   string `json:"rule"`
	Module string `json:"module"`

	// Input and Output are the input and the result of the Rego evaluation.
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output,omitempty"`

	// Error that the evaluation ended with; Output is missing then.
	Error string `json:"error,omitempty"`

	DurationMicroseconds int64 `json:"durationMicroseconds"`

	// TraceIDs are the trace ids of the evaluated lifecycles, sorted. A lifecycle
	// without an exported trace has none.
	TraceIDs []string `json:"traceIds,omitempty"`

	// Masked are the paths in Input whose values were replaced. Such a decision cannot
	// be repeated.
	Masked []string `json:"masked,omitempty"`
}
