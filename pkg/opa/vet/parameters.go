package vet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Codes of the problems that Parameters.Hints returns.
const (
	// HintUnsetParameter means that the module reads a parameter that the rule does not set.
	HintUnsetParameter = "unset-parameter"

	// HintUnreadParameter means that the rule sets a parameter that the module does not read.
	HintUnreadParameter = "unread-parameter"
)

// Parameters are the parameters that a module reads.
type Parameters struct {
	// Read are the names of all of them, sorted.
	Read []string `json:"read,omitempty"`

	// Required are the parameters that a rule must set, with the first place of each. A read that the module negates or compares in
	// a negation, gives a default, or makes by object.get is optional.
	Required []ParameterRead `json:"required,omitempty"`

	// Computed reports that the parameters are read as a whole, or by a name that the module computes: then no set
	// parameter counts as unread.
	Computed bool `json:"computed,omitempty"`

	// Row and Column are the place of the package.
	Row, Column int
}

// ParameterRead is the place at which a module reads a parameter.
type ParameterRead struct {
	Name        string
	Row, Column int
}

// ReadParameters returns the parameters that a module reads, as Read has returned it.
func ReadParameters(module *ast.Module) Parameters {
	uses := &parameterUses{aliases: aliasesOfParameters(module), defaults: defaultsOf(module), read: map[string]bool{}}
	for _, rule := range module.Rules {
		uses.collect(rule)
	}
	found := Parameters{Read: slices.Sorted(maps.Keys(uses.read)), Required: uses.required, Computed: uses.computed}
	if place := module.Package.Location; place != nil {
		found.Row, found.Column = place.Row, place.Col
	}
	return found
}

// Hints returns the differences to the parameters that a rule sets.
func (p Parameters) Hints(set []string) []Problem {
	var found []Problem
	for _, name := range slices.Sorted(slices.Values(set)) {
		if !p.Computed && !slices.Contains(p.Read, name) {
			found = append(found, Problem{Row: p.Row, Column: p.Column, Code: HintUnreadParameter, Message: fmt.Sprintf(
				"the rule sets the parameter %q, which the module does not read%s", name, listed("it reads", p.Read))})
		}
	}
	for _, one := range p.Required {
		if !slices.Contains(set, one.Name) {
			found = append(found, Problem{Row: one.Row, Column: one.Column, Code: HintUnsetParameter, Message: fmt.Sprintf(
				"the module reads the parameter %q, which the rule does not set: the condition with it is undefined%s", one.Name, listed("the rule sets", set))})
		}
	}
	return found
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

	// read, required and computed are the fields of Parameters.
	read     map[string]bool
	required []ParameterRead
	computed bool
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
			if node.Negated && (!node.IsCall() || node.IsEquality() || node.Operator().Equal(ast.Equal.Ref())) {
				u.visit(node.Terms, node.Location, true)
				return true
			} // the arguments of another call are evaluated before it is negated
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
		if !optional && !slices.ContainsFunc(u.required, func(other ParameterRead) bool { return other.Name == string(name) }) {
			u.required = append(u.required, placedAt(string(name), at))
		}
		u.read[string(name)] = true
		return
	}
}

func placedAt(name string, place *ast.Location) ParameterRead {
	if place == nil {
		return ParameterRead{Name: name}
	}
	return ParameterRead{Name: name, Row: place.Row, Column: place.Col}
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
