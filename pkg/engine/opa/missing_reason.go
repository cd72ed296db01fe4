package opa

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// maxReferences bounds the number of references to the input that are kept for one module.
const maxReferences = 16

// reference is a path in the input that the rule reason of a module reads.
type reference struct {
	path ast.Ref
	row  int
}

// missingReason explains why a module that does not allow a request gives no reason.
type missingReason struct {
	hasReason  bool
	references []reference
}

// findMissingReason returns the references to the input in the rule reason of a compiled module, in the
// order of the text. A path with a variable in it is kept up to the variable.
func findMissingReason(module *ast.Module) missingReason {
	found := missingReason{}
	for _, rule := range module.Rules {
		if rule.Head.Name != "reason" && !rule.Head.Ref().Equal(ast.Ref{ast.VarTerm("reason")}) {
			continue
		}
		found.hasReason = true
		ast.WalkTerms(rule, func(term *ast.Term) bool {
			ref, ok := term.Value.(ast.Ref)
			if !ok || !ref.HasPrefix(ast.InputRootRef) || len(found.references) == maxReferences {
				return false
			}
			if prefix := ref.GroundPrefix(); len(prefix) > 1 {
				found.references = append(found.references, reference{path: prefix, row: termRow(term)})
			}
			return false
		})
	}
	return found
}

func termRow(term *ast.Term) int {
	if term.Location == nil {
		return 0
	}
	return term.Location.Row
}

// message names the first reference that the input does not have.
func (s missingReason) message(input ast.Value) string {
	const notTrue = "allow is not true for this pod, and "
	if !s.hasReason {
		return notTrue + "the module has no reason"
	}
	for _, reference := range s.references {
		if _, err := input.Find(reference.path[1:]); err != nil {
			return boundedMessage(fmt.Sprintf("%sreason has no value: the input has no %s (row %d)", notTrue, reference.path, reference.row))
		}
	}
	return notTrue + "reason has no value: does it read a label that the pod lacks?"
}

// explain adds a message to a verdict without one: why the module returned no message.
func (s missingReason) explain(verdict rule.Verdict, input ast.Value) rule.Verdict {
	if verdict.Message == "" && (verdict.Code == rule.CodeNotAllowed || verdict.Would == rule.CodeNotAllowed) {
		verdict.Message = s.message(input)
	}
	return verdict
}
