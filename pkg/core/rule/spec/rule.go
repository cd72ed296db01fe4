package spec

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Module is one rule in the form that the engine evaluates.
type Module struct {
	ID          rule.RuleID
	Kind        rule.Kind
	Stage       appsv1alpha1.TransitionStage
	Enforcement appsv1alpha1.Enforcement

	// Literal has the fields of the rule that the library reads, as JSON.
	Literal json.RawMessage

	// Custom is the user's module; nil for built-in kinds.
	Custom *Custom
}

// Entry is the entry point of a user's module.
type Entry string

// The entry points that a user's module may have. It has exactly one of them.
const (
	EntryAllow Entry = "allow"
	EntryDeny  Entry = "deny"
)

// Owner returns the owner that is charged for the program of the rule: the PodTransitionPolicy of
// its module, or its namespace.
func (m Module) Owner() string {
	if m.Custom != nil && m.Custom.Policy != "" {
		return PolicyOwner(m.Custom.Policy)
	}
	return m.ID.Ruleset.Namespace
}

// PolicyOwner returns the owner of a PodTransitionPolicy's module. No namespace has this name.
func PolicyOwner(policy string) string { return "PodTransitionPolicy/" + policy }

// Custom is the module of a user's rule, inline or of a PodTransitionPolicy, as opa.Inspect found
// it.
type Custom struct {
	Source string
	Entry  Entry

	// Policy is the name of the module's PodTransitionPolicy; empty for an inline module.
	Policy string `json:",omitempty"`

	// ParametersSchema is a JSON schema of the parameters; nil leaves them open.
	ParametersSchema json.RawMessage `json:",omitempty"`

	// Parameters is a JSON object, completed by the defaults of the schema.
	Parameters json.RawMessage
}

// Rule compiles one rule of the PodTransitionRule object. It normalizes the rule first, so that a
// rule that bypassed admission compiles like any other. The rule itself is not changed, and may be
// disabled: the caller leaves disabled rules out. custom is for rules of kind rego, and nil for all
// others.
//
// The error has the field at fault, as a path below spec.rules, and aggregates field.Errors.
func Rule(object types.NamespacedName, entry appsv1alpha1.TransitionRule, custom *Custom) (Module, error) {
	path := field.NewPath("spec", "rules").Key(entry.Name)
	normalized := entry.DeepCopy()
	_, errs := Normalize(normalized, path)
	if errs = append(errs, Validate(*normalized, path)...); len(errs) > 0 {
		return Module{}, fmt.Errorf("compiling rule %q: %w", entry.Name, errs.ToAggregate())
	}

	module := Module{
		ID:          rule.RuleID{Ruleset: object, Rule: normalized.Name},
		Kind:        listKinds(*normalized)[0],
		Stage:       normalized.Stage,
		Enforcement: normalized.Enforcement,
	}
	if module.Kind == rule.KindRego {
		if custom == nil {
			return Module{}, fmt.Errorf("compiling rule %q: %s: the user's module is missing", entry.Name, path.Child("rego"))
		}
		if !isObject(custom.Parameters) {
			return Module{}, fmt.Errorf("compiling rule %q: the parameters are not an object", entry.Name)
		}
		module.Custom = custom
	}
	var err error
	if module.Literal, err = json.Marshal(ruleParameters(*normalized)); err != nil {
		return Module{}, fmt.Errorf("compiling rule %q: %w", entry.Name, err)
	}
	return module, nil
}

// listKinds returns the kinds of check that a rule sets, in a fixed order; a valid rule has exactly
// one.
func listKinds(entry appsv1alpha1.TransitionRule) []rule.Kind {
	kinds := []rule.Kind{}
	for _, kind := range []struct {
		name rule.Kind
		set  bool
	}{
		{rule.KindAvailablePolicy, entry.AvailablePolicy != nil},
		{rule.KindLabelCheck, entry.LabelCheck != nil},
		{rule.KindApproval, entry.Approval != nil},
		{rule.KindWebhook, entry.Webhook != nil},
		{rule.KindRego, entry.Rego != nil},
	} {
		if kind.set {
			kinds = append(kinds, kind.name)
		}
	}
	return kinds
}

// Library returns the package below data.podops.rules for rules of a kind.
func Library(kind rule.Kind) string {
	switch kind {
	case rule.KindAvailablePolicy:
		return "availability"
	case rule.KindRego:
		return "custom"
	default:
		return strings.ToLower(string(kind))
	}
}
