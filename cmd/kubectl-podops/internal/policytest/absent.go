package policytest

import (
	"cmp"
	"context"
	"fmt"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/absence"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// modules evaluates the modules of rules, and keeps their inputs.
type modules struct {
	engine *opa.Engine
	log    *observation.Log
}

// testInput is an input of a module in a test.
type testInput struct {
	observation.Input

	// about is the rule and the pod, or the file of the module.
	about string
	test  result
}

// takeInputs returns the inputs of a test, whose evaluations have ended.
func (m modules) takeInputs(test result) []testInput {
	var inputs []testInput
	for _, one := range m.log.Take(func(string, string) bool { return true }) {
		inputs = append(inputs, testInput{one, fmt.Sprintf("rule %s, pod %s", one.Module.ID, one.Pod), test})
	}
	return inputs
}

// absentFacts returns warnings about facts without which a pod of a test passes.
func (m modules) absentFacts(ctx context.Context, inputs []testInput) ([]result, error) {
	var warnings []result
	for _, group := range observation.ByModule(inputs) {
		limited, end := context.WithTimeout(ctx, absence.Timeout)
		found, err := absence.FindIn(limited, m.engine, *group[0].Module.Custom, observation.Documents(group))
		end()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", group[0].about, err)
		}
		for _, one := range found.Findings {
			place := ""
			if at := one.Place; at.Row > 0 { // its key is in the module
				place = fmt.Sprintf(" (row %d, column %d of %s)", at.Row, at.Column, cmp.Or(at.File, "the module"))
			}
			warnings = append(warnings, group[one.Input].warning(fmt.Sprintf("%s%s [%s]\n%s", one, place, one.ID(), absence.Fix(one.ID()))))
		}
		if found.IsCut {
			warnings = append(warnings, group[0].warning(
				"not all facts were removed: the module reads too many, or takes too long [absent-facts-cut]"))
		}
	}
	return warnings, nil
}

// warning returns a warning about an input.
func (i testInput) warning(message string) result {
	made := i.test
	made.Failed, made.Warning, made.Message = false, true, i.about+": "+message
	return made
}
