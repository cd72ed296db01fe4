package opa

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// Codes of Inspection.Hints.
const (
	// HintNoReason means that a module with allow has no reason.
	HintNoReason = vet.HintNoReason

	// HintMessageReads means that deny has a message that reads a fact which can be absent: nothing is denied then.
	HintMessageReads = vet.HintMessageReads

	// HintDefaultAllow means that allow is true by default.
	HintDefaultAllow = vet.HintDefaultAllow

	// HintEmptyCondition means that a body is an empty object, which is always true.
	HintEmptyCondition = vet.HintEmptyCondition

	// HintNoNumber means that a label or an annotation is compared with a number.
	HintNoNumber = vet.HintNoNumber

	// HintFormat means that the format of a message does not fit its arguments.
	HintFormat = vet.HintFormat

	// HintOtherPods means that a label or an annotation withholds a pod when another pod has it, and not when the pod has it itself.
	HintOtherPods = vet.HintOtherPods
)

// Codes of the problems that ParameterHints returns.
const (
	// HintUnsetParameter means that the module reads a parameter that the rule does not set.
	HintUnsetParameter = vet.HintUnsetParameter

	// HintUnreadParameter means that the rule sets a parameter that the module does not read.
	HintUnreadParameter = vet.HintUnreadParameter
)

// ParameterHints returns the differences between the parameters that a module reads and the parameters that its
// rule sets, a JSON object or nothing. Rules are evaluated all the same.
func (i Inspection) ParameterHints(parameters json.RawMessage) ([]Problem, error) {
	set := map[string]json.RawMessage{}
	if len(parameters) > 0 {
		if err := json.Unmarshal(parameters, &set); err != nil {
			return nil, fmt.Errorf("reading the parameters: %w", err)
		}
	}
	return i.Parameters.Hints(slices.Collect(maps.Keys(set))), nil
}
