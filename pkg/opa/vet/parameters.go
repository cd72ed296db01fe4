package vet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Codes of the problems that ParameterHints returns.
const (
	// HintUnsetParameter means that the module reads a parameter that the rule does not set.
	HintUnsetParameter = "unset-parameter"

	// HintUnreadParameter means that the rule sets a parameter that the module does not read.
	HintUnreadParameter = "unread-parameter"
)

// ParameterHints compares the parameters that a module reads with the parameters that its rule sets. A read that
// the module negates, gives a default, or makes by object.get is optional. Names that the module computes are
// unknown: then no set parameter counts as unread.
func ParameterHints(source string, set []string) ([]Problem, error) {
	if err := CheckSize(source); err != nil {
		return nil, err
	}
	module, _, err := Read(source, Capabilities())
	if err != nil {
		return nil, AsCompileError(err)
	}
	uses := &parameterUses{aliases: aliasesOfParameters(module), defaults: defaultsOf(module), read: map[string]bool{}}
	for _, rule := range module.Rules {
		uses.collect(rule)
	}
	var found []Problem
	for _, name := range slices.Sorted(slices.Values(set)) {
		if !uses.computed && !uses.read[name] {
			found = append(found, problemAt(module.Package.Location, HintUnreadParameter, fmt.Sprintf(
				"the rule sets the parameter %q, which the module does not read%s", name, listed("it reads", uses.names()))))
		}
	}
	for _, one := range uses.required {
		if !slices.Contains(set, one.name) {
			found = append(found, problemAt(one.at, HintUnsetParameter, fmt.Sprintf(
				"the module reads the parameter %q, which the rule does not set: the condition with it is undefined%s", one.name, listed("the rule sets", set))))
		}
	}
	return found, nil
}

// maxListed is the number of parameters that a problem lists.
const maxListed = 5

// listed returns "; <verb> a, b", or nothing without names.
func listed(verb string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	names = slices.Sorted(slices.Values(names))
	if len(names) > maxListed {
		names = append(names[:maxListed:maxListed], "...")
	}
	return "; " + verb + " " + strings.Join(names, ", ")
}

// parameterUses are the parameters that a module reads.
type parameterUses struct {
	aliases  []ast.Ref
	defaults map[string]bool

	// read has every name, and required the first place of each that must be set.
	read     map[string]bool
	required []parameterRead

	// computed reports that the parameters are read as a whole, or by a name that is no constant.
	computed bool
}

type parameterRead struct {
	name string
	at   *ast.Location
}

func (u *parameterUses) names() []string {
	var names []string
	for name := range u.read {
		names = append(names, name)
	}
	return names
}

// collect adds the parameters that a rule reads.
func (u *parameterUses) collect(rule *ast.Rule) {
	optional := u.defaults[rule.Head.Ref().String()]
	ast.NewGenericVisitor(func(node any) bool {
		switch node := node.(type) {
		case *ast.Expr:
			if isAlias(node) {
				return true
			}
			if node.Negated {
				u.visit(node.Terms, node.Location, true)
				return true
			}
		case ast.Call:
			if name, ok := u.getter(node); ok {
				u.read[name] = true
				u.visit(node[3:], node[0].Location, optional)
				return true
			}
		case *ast.Term:
			if ref, ok := node.Value.(ast.Ref); ok {
				u.add(ref, node.Location, optional)
			}
		}
		return false
	}).Walk(rule)
}

// visit adds the parameters that a part of an expression reads.
func (u *parameterUses) visit(part any, at *ast.Location, optional bool) {
	ast.WalkRefs(part, func(ref ast.Ref) bool {
		u.add(ref, at, optional)
		return false
	})
}

// add adds a reference, if it reads a parameter.
func (u *parameterUses) add(ref ast.Ref, at *ast.Location, optional bool) {
	for _, alias := range u.aliases {
		if !ref.HasPrefix(alias) {
			continue
		}
		if len(ref) == len(alias) {
			u.computed = true
			return
		}
		name, constant := ref[len(alias)].Value.(ast.String)
		if !constant {
			u.computed = true
			return
		}
		if !optional && !slices.ContainsFunc(u.required, func(other parameterRead) bool { return other.name == string(name) }) {
			u.required = append(u.required, parameterRead{string(name), at})
		}
		u.read[string(name)] = true
		return
	}
}

// getter returns the parameter that a call of object.get reads.
func (u *parameterUses) getter(call ast.Call) (string, bool) {
	if len(call) != 4 || call[0].Value.String() != "object.get" {
		return "", false
	}
	ref, ok := call[1].Value.(ast.Ref)
	if !ok || !slices.ContainsFunc(u.aliases, func(alias ast.Ref) bool { return alias.Equal(ref) }) {
		return "", false
	}
	key := call[2]
	if path, ok := key.Value.(*ast.Array); ok && path.Len() > 0 {
		key = path.Elem(0)
	}
	name, ok := key.Value.(ast.String)
	return string(name), ok
}

// aliasesOfParameters returns input.parameters, and the local names that a module gives it.
func aliasesOfParameters(module *ast.Module) []ast.Ref {
	parameters := ast.InputRootRef.Append(ast.StringTerm("parameters"))
	aliases := []ast.Ref{parameters}
	for _, imported := range module.Imports {
		if path, ok := imported.Path.Value.(ast.Ref); ok && path.Equal(parameters) {
			aliases = append(aliases, ast.Ref{ast.VarTerm(string(imported.Name()))})
		}
	}
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if isAlias(expr) {
			if ref, ok := expr.Operand(1).Value.(ast.Ref); ok && ref.Equal(parameters) {
				aliases = append(aliases, ast.Ref{expr.Operand(0)})
			}
		}
		return false
	})
	return aliases
}

// isAlias reports whether an expression gives input.parameters a local name.
func isAlias(expr *ast.Expr) bool {
	if !expr.IsAssignment() {
		return false
	}
	_, local := expr.Operand(0).Value.(ast.Var)
	ref, isRef := expr.Operand(1).Value.(ast.Ref)
	return local && isRef && ref.Equal(ast.InputRootRef.Append(ast.StringTerm("parameters")))
}

// defaultsOf returns the rules of a module that have a default value, other than the entry points.
func defaultsOf(module *ast.Module) map[string]bool {
	found := map[string]bool{}
	for _, rule := range module.Rules {
		if name := rule.Head.Ref().String(); rule.Default && name != "allow" && name != "deny" {
			found[name] = true
		}
	}
	return found
}
