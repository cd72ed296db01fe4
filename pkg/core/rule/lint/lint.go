// Package lint finds probable mistakes in PodTransitionRules that admission accepts. It is pure.
package lint

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Ids of findings.
const (
	NeverPasses         = "never-passes"
	PassesWithSurge     = "passes-with-surge"
	FilterMatchesNoPod  = "filter-matches-no-pod"
	UnknownOperation    = "unknown-operation"
	DisabledRule        = "disabled-rule"
	NoEnforcedRule      = "no-enforced-rule"
	ExemptsWithoutStage = "exempt-without-effect"
	FixedOrder          = "fixed-order"
)

// Finding is one probable mistake.
type Finding struct {
	ID string

	// Field is the path of the field.
	Field   string
	Message string
}

// Rule returns the findings of a PodTransitionRule in its canonical spelling, in the order of its fields.
func Rule(object *appsv1alpha1.PodTransitionRule) []Finding {
	var found []Finding
	enforced := false
	for i := range object.Spec.Rules {
		entry, path := &object.Spec.Rules[i], fmt.Sprintf("spec.rules[%d]", i)
		found = append(found, ruleFindings(entry, object.Spec.Selector, path)...)
		enforced = enforced || !entry.Disabled && (entry.Enforcement == "" || entry.Enforcement == appsv1alpha1.EnforcementEnforce)
	}
	if !enforced && len(object.Spec.Rules) > 0 {
		found = append(found, Finding{NoEnforcedRule, "spec.rules", "no rule is enforced, so the object withholds no pod"})
	}
	return found
}

func ruleFindings(entry *appsv1alpha1.TransitionRule, selector *metav1.LabelSelector, path string) []Finding {
	if entry.Disabled {
		return []Finding{{DisabledRule, path + ".disabled", "the rule is disabled, and is not evaluated"}}
	}
	var found []Finding
	var filter, requires *metav1.LabelSelector
	if entry.Filter != nil {
		filter = entry.Filter.LabelSelector
	}
	if entry.LabelCheck != nil {
		requires = entry.LabelCheck.Requires
	}
	if why := contradiction(selector, filter); why != "" {
		found = append(found, Finding{FilterMatchesNoPod, path + ".filter", "the rule applies to no pod: " + why})
	} else if why := contradiction(selector, filter, requires); why != "" && requires != nil {
		found = append(found, Finding{NeverPasses, path + ".labelCheck.requires", "no pod ever passes the rule: " + why})
	}
	if why := spec.PermitsNone(entry.AvailablePolicy, 0); why != "" && !spec.Surges(entry.AvailablePolicy) {
		found = append(found, Finding{PassesWithSurge, path + ".availablePolicy", spec.PassesWithSurge(why)})
	}
	for i, operation := range entry.Conditions {
		if !rule.BeginsOperation(operation, entry.Stage) {
			found = append(found, Finding{UnknownOperation, fmt.Sprintf("%s.conditions[%d]", path, i), fmt.Sprintf(
				"PodOps itself begins no operation of type %q for this stage, only of type %q in PreCheck and %q of new pods in PostCheck: "+
					"the rule applies only if an operation controller of yours uses it",
				operation, appsv1alpha1.DeleteOperationType, appsv1alpha1.CreateOperationType)})
		}
	}
	if entry.ExemptRevisions != "" && entry.ExemptRevisions != "None" && entry.Stage == appsv1alpha1.StagePostCheck {
		found = append(found, Finding{ExemptsWithoutStage, path + ".exemptRevisions", "it has no effect in PostCheck"})
	}
	return found
}

// requirement is the set of values that selectors together require of one label.
type requirement struct {
	present, absent bool

	// allowed are the values that are allowed; nil for all of them.
	allowed   []string
	limited   bool
	forbidden []string
}

// contradiction returns why no labels match all selectors; empty if some do.
func contradiction(selectors ...*metav1.LabelSelector) string {
	byKey := map[string]*requirement{}
	of := func(key string) *requirement {
		if byKey[key] == nil {
			byKey[key] = &requirement{}
		}
		return byKey[key]
	}
	for _, selector := range selectors {
		if selector == nil {
			continue
		}
		for key, value := range selector.MatchLabels {
			of(key).allow([]string{value})
		}
		for _, expression := range selector.MatchExpressions {
			switch r := of(expression.Key); expression.Operator {
			case metav1.LabelSelectorOpIn:
				r.allow(expression.Values)
			case metav1.LabelSelectorOpNotIn:
				r.forbidden = append(r.forbidden, expression.Values...)
			case metav1.LabelSelectorOpExists:
				r.present = true
			case metav1.LabelSelectorOpDoesNotExist:
				r.absent = true
			}
		}
	}
	var reasons []string
	for key, r := range byKey {
		if why := r.contradiction(); why != "" {
			reasons = append(reasons, fmt.Sprintf("label %s %s", key, why))
		}
	}
	slices.Sort(reasons)
	return strings.Join(reasons, "; ")
}

func (r *requirement) allow(values []string) {
	r.present = true
	if !r.limited {
		r.allowed, r.limited = slices.Clone(values), true
		return
	}
	r.allowed = slices.DeleteFunc(r.allowed, func(value string) bool { return !slices.Contains(values, value) })
}

func (r *requirement) contradiction() string {
	left := slices.DeleteFunc(slices.Clone(r.allowed), func(value string) bool { return slices.Contains(r.forbidden, value) })
	switch {
	case r.present && r.absent:
		return "must be there, and must not"
	case r.limited && len(left) == 0:
		return "has no value that is allowed everywhere"
	default:
		return ""
	}
}
