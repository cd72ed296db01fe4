package vet

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// paths are paths of values whose absence a module tests.
type paths map[string]bool

func (p paths) add(reads []InputRead) {
	for _, read := range reads {
		p[strings.Join(read.Path, "\x00")] = true
	}
}

// test reports whether one of these values is tested, or for parameters and input.rule one that it is in.
func (p paths) test(read InputRead) bool {
	hasParts := len(read.Path) > 1 && (read.Path[0] == "parameters" || read.Path[0] == "rule")
	for length := len(read.Path); length > 0; length-- {
		if (length == len(read.Path) || hasParts && length > 1) && p[strings.Join(read.Path[:length], "\x00")] {
			return true
		}
	}
	return false
}

// elseBranches returns a rule and its else branches, each without the next one.
func elseBranches(rule *ast.Rule) []*ast.Rule {
	var branches []*ast.Rule
	for branch := rule; branch != nil; branch = branch.Else {
		one := *branch
		one.Else = nil
		branches = append(branches, &one)
	}
	return branches
}

// otherValue returns the value of a rule whose other values are undefined: its default, or its last else branch without a condition. It is
// nil without one, and for entry points.
func otherValue(defaults map[string]*ast.Term, rule *ast.Rule) *ast.Term {
	name := ruleName(rule)
	if value := defaults[name]; value != nil || isEntry(name) {
		return value
	}
	branches := elseBranches(rule)
	last := branches[len(branches)-1]
	if len(branches) == 1 || !isUnconditional(last) || readsInput(last.Head.Value) {
		return nil
	}
	return last.Head.Value
}

// readsInput reports whether a term is a value of the input, or is computed from one.
func readsInput(term *ast.Term) bool {
	reads := false
	ast.WalkRefs(term, func(ref ast.Ref) bool {
		reads = reads || ref[0].Equal(ast.InputRootDocument)
		return reads
	})
	return reads
}

// defaultsIn returns the default values of rules by their names, without entry points.
func defaultsIn(module *ast.Module) map[string]*ast.Term {
	found := map[string]*ast.Term{}
	for _, rule := range module.Rules {
		if name := ruleName(rule); rule.Default && !isEntry(name) {
			found[name] = rule.Head.Value
		}
	}
	return found
}

// isUnconditional reports whether the body of a rule is empty, or true.
func isUnconditional(rule *ast.Rule) bool {
	return len(rule.Body) == 0 || isTrueBody(rule.Body)
}
