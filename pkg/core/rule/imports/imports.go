// Package imports finds the modules and the data that the module of a PodTransitionPolicy imports.
//
//	spec.imports --Source--> the module, with the policies that it names, as one text (spec.Join)
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Policies are the PodTransitionPolicies of a cluster, by name.
type Policies map[string]*appsv1alpha1.PodTransitionPolicy

// maxImported is the number of policies that a policy may import, directly and through others.
const maxImported = 16

// NotFoundError means that a policy imports one that does not exist.
type NotFoundError struct {
	// Policy imports Name.
	Policy, Name string
}

// Error names both policies.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("PodTransitionPolicy %q imports %q, which does not exist", e.Policy, e.Name)
}

// Closure returns the names of the policy and all policies that it imports, directly and through others, sorted, whether they
// exist or not. It ends after maxImported imports.
func (p Policies) Closure(name string) []string {
	names := []string{name}
	for i := 0; i < len(names) && len(names) <= maxImported; i++ {
		policy, ok := p[names[i]]
		if !ok {
			continue
		}
		for _, imported := range policy.Spec.Imports {
			if !slices.Contains(names, imported) {
				names = append(names, imported)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Importers returns the names of the policies that import the policy, directly or through others, sorted.
func (p Policies) Importers(name string) []string {
	var importers []string
	for other, policy := range p {
		if other != name && len(policy.Spec.Imports) > 0 && slices.Contains(p.Closure(other), name) {
			importers = append(importers, other)
		}
	}
	slices.Sort(importers)
	return importers
}

// Version returns a text that changes if, and only if, the policy or one that it imports changes.
func (p Policies) Version(name string) string {
	versions := strings.Builder{}
	for _, one := range p.Closure(name) {
		if policy, ok := p[one]; ok {
			fmt.Fprintf(&versions, "%s@%d ", policy.UID, policy.Generation)
		} else {
			versions.WriteString("missing ")
		}
	}
	return versions.String()
}

// IsLibrary reports whether other policies import the policy, and no rule can refer to it: its package is lib.<name>, or it
// has data and no module.
func IsLibrary(policy *appsv1alpha1.PodTransitionPolicy) bool {
	return policy.Spec.Module == "" && policy.Spec.Data != nil || regexp.MustCompile(`^(\s|#[^\n]*\n)*package\s+lib\b`).MatchString(policy.Spec.Module)
}

// libraryRule is the rule with which a library is compiled, so that it is checked before a policy imports it.
const libraryRule = `package rule

allow := false

reason := "a library decides nothing"
`

// Source returns the module of a policy, with its own data and everything that it imports, as spec.Join joins them. The error
// is a *NotFoundError for an import that does not exist, wraps objectbounds.ErrTooLarge for one that is not loaded, and is a
// *field.Error for what an edit of the policy mends.
func (p Policies) Source(policy *appsv1alpha1.PodTransitionPolicy) (string, error) {
	known := Policies{}
	maps.Copy(known, p)
	known[policy.Name] = policy
	names := known.Closure(policy.Name)
	if err := known.check(policy, names); err != nil {
		return "", err
	}
	module, parts := policy.Spec.Module, []spec.Part(nil)
	if IsLibrary(policy) {
		module = libraryRule
	}
	for _, name := range names {
		found, err := sharedParts(known[name])
		if err != nil {
			return "", err
		}
		parts = append(parts, found...)
	}
	return spec.Join(module, parts), nil
}

// check returns why a policy cannot be compiled with the named ones, which it imports.
func (p Policies) check(policy *appsv1alpha1.PodTransitionPolicy, names []string) error {
	path := field.NewPath("spec", "imports")
	if len(names) > maxImported+1 {
		return field.TooMany(path, len(names)-1, maxImported)
	}
	for _, name := range names {
		one, ok := p[name]
		if !ok {
			return &NotFoundError{Policy: p.directImporter(name, names), Name: name}
		}
		if err := objectbounds.TooLarge(one); err != nil {
			return fmt.Errorf("PodTransitionPolicy %q: %w", name, err)
		}
		if name != policy.Name && !IsLibrary(one) {
			return field.Invalid(path, name, "its package is not lib, and it has a module: policies import libraries and data")
		}
		for _, imported := range one.Spec.Imports {
			switch {
			case imported == name:
				return field.Invalid(path, imported, name+" imports itself")
			case slices.Contains(p.Closure(imported), name):
				return field.Invalid(path, imported, fmt.Sprintf("%s and %s import each other", name, imported))
			}
		}
	}
	return nil
}

// directImporter returns the first policy by name that imports another directly.
func (p Policies) directImporter(imported string, names []string) string {
	for _, name := range names {
		if policy, ok := p[name]; ok && slices.Contains(policy.Spec.Imports, imported) {
			return name
		}
	}
	return ""
}

// sharedParts returns the files that a module sees of a policy: its library and its data.
func sharedParts(policy *appsv1alpha1.PodTransitionPolicy) ([]spec.Part, error) {
	var parts []spec.Part
	if policy.Spec.Data != nil {
		source, err := dataSource(policy)
		if err != nil {
			return nil, err
		}
		parts = append(parts, spec.Part{File: "config/" + policy.Name + ".rego", Source: source})
	}
	if policy.Spec.Module != "" && IsLibrary(policy) {
		parts = append(parts, spec.Part{File: "lib/" + policy.Name + ".rego", Source: policy.Spec.Module})
	}
	return parts, nil
}

// dataSource returns the data of a policy as a module: each field is a rule with a constant value.
func dataSource(policy *appsv1alpha1.PodTransitionPolicy) (string, error) {
	path := field.NewPath("spec", "data")
	decoder := json.NewDecoder(bytes.NewReader(policy.Spec.Data.Raw))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return "", field.Invalid(path, "", fmt.Sprintf("must be an object: %v", err))
	}
	source := &bytes.Buffer{}
	fmt.Fprintf(source, "package config[%q]\n", policy.Name)
	encoder := json.NewEncoder(source)
	encoder.SetEscapeHTML(false)
	isRule := regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !isRule.MatchString(name) {
			errs = append(errs, field.Invalid(path, name, "the name of a field must be one of Rego: letters, digits and _"))
		}
		fmt.Fprintf(source, "\n%s := ", name)
		errs = append(errs, encoder.Encode(values[name]))
	}
	return source.String(), errors.Join(errs...)
}
