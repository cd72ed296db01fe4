package vet

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// HintOtherPods is the code of a fact that withholds a pod when another pod has it, and not when the pod has it itself.
const HintOtherPods = "only-other-pods"

// otherPods returns the labels and annotations that a module forbids on the pods of input.pods and never reads of input.pod. That pod is
// not among input.pods: it goes first, with the fact that holds the others back.
func otherPods(module *ast.Module) []Problem {
	own, negated, whole := map[string]bool{}, map[string]bool{}, false
	ast.WalkRefs(module, func(ref ast.Ref) bool {
		switch {
		case isOptionalEntry(ref):
			own[ref[2:].String()] = true
		case slices.Contains([]string{"input", "input.pod", "input.pod.labels", "input.pod.annotations"}, ref.String()):
			whole = true // a function or a list of pods reads facts of it
		}
		return false
	})
	if whole {
		return nil
	}
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if expr.Negated {
			ast.WalkTerms(expr, func(term *ast.Term) bool {
				negated[term.String()] = true
				return false
			})
		}
		return false
	})
	var found []Problem
	for _, rule := range module.Rules {
		if !ReadNeeds(&ast.Module{Package: module.Package, Rules: []*ast.Rule{rule}}).Pods || ruleName(rule) != "deny" && !negated[ruleName(rule)] {
			continue
		}
		ast.WalkRefs(rule.Body, func(ref ast.Ref) bool {
			if fact, ok := variableFact(ref); ok && !own[fact] {
				found = append(found, problemAt(ref[0].Location, HintOtherPods, fmt.Sprintf(
					"%s is read of the other pods only: input.pods does not have the pod itself, which is input.pod", ref)))
			}
			return false
		})
	}
	return found
}

// variableFact returns the label or annotation that a reference reads of a variable, such as a pod of input.pods.
func variableFact(ref ast.Ref) (fact string, ok bool) {
	if _, isVar := ref[0].Value.(ast.Var); !isVar || ref[0].Equal(ast.InputRootDocument) || ref[0].Equal(ast.DefaultRootDocument) || len(ref) < 3 {
		return "", false
	}
	name, _ := ref[1].Value.(ast.String)
	return ref[1:].String(), name == "labels" || name == "annotations"
}

// isOptionalEntry reports whether a reference is to a label or an annotation, or below one.
func isOptionalEntry(ref ast.Ref) bool {
	reads := (&ruleReads{}).resolve(ref)
	return len(reads) == 1 && len(reads[0].Path) > 2 && isOptionalPath(reads[0].Path[:3])
}
