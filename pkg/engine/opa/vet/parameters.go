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
	// Read are the names of all, sorted.
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
	reads := newReads()
	readReads(module, reads)
	found, names, required := Parameters{}, map[string]bool{}, map[string]bool{}
	if place := module.Package.Location; place != nil {
		found.Row, found.Column = place.Row, place.Col
	}
	for _, read := range reads.Input {
		switch {
		case len(read.Path) > 0 && read.Path[0] != "parameters":
		case len(read.Path) < 2, read.Path[1] == AnyKey:
			found.Computed = true
		default:
			name, place := read.Path[1], read.Places[1]
			if !read.IsOptional && !required[name] {
				required[name] = true
				found.Required = append(found.Required, ParameterRead{Name: name, Row: place.Row, Column: place.Column})
			}
			names[name] = true
		}
	}
	found.Read = slices.Sorted(maps.Keys(names))
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
