package objectbounds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Rule returns the bounds that the spec of a PodTransitionRule exceeds; empty when it can
// be loaded. Selectors are counted before the spec is encoded, so a hostile selector costs
// little.
func Rule(spec *appsv1alpha1.PodTransitionRuleSpec) field.ErrorList {
	root := field.NewPath("spec")
	if count := len(spec.Rules); count > appsv1alpha1.MaxTransitionRules {
		return field.ErrorList{field.TooMany(root.Child("rules"), count, appsv1alpha1.MaxTransitionRules)}
	}
	errs := Selector(spec.Selector, root.Child("selector"))
	values := countValues(spec.Selector)
	for i := range spec.Rules {
		rule, path := &spec.Rules[i], root.Child("rules").Index(i)
		if rule.Filter != nil {
			errs = append(errs, Selector(rule.Filter.LabelSelector, path.Child("filter", "labelSelector"))...)
			values += countValues(rule.Filter.LabelSelector)
		}
		if rule.LabelCheck != nil {
			errs = append(errs, Selector(rule.LabelCheck.Requires, path.Child("labelCheck", "requires"))...)
			values += countValues(rule.LabelCheck.Requires)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if values > appsv1alpha1.MaxRuleSelectorValues {
		return field.ErrorList{field.Forbidden(root, fmt.Sprintf("its selectors have %d labels and values, at most %d are allowed",
			values, appsv1alpha1.MaxRuleSelectorValues))}
	}
	return overSize(encodedSize(spec), root, appsv1alpha1.MaxRuleSpecBytes)
}

// RuleSize returns the size of a spec in the budget of its namespace
// (appsv1alpha1.MaxNamespaceRuleBytes).
func RuleSize(spec *appsv1alpha1.PodTransitionRuleSpec) int {
	return encodedSize(spec) + appsv1alpha1.RuleOverheadBytes
}

// Policy returns the bounds that the spec of a PodTransitionPolicy exceeds; empty when it can
// be loaded.
func Policy(spec *appsv1alpha1.PodTransitionPolicySpec) field.ErrorList {
	return overSize(encodedSize(spec), field.NewPath("spec"), appsv1alpha1.MaxPolicySpecBytes)
}

// Selector returns the bounds that one label selector exceeds. It may be nil. It returns at most
// one error for each entry of matchExpressions within the bound on their number.
func Selector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	errs := matchLabels(selector.MatchLabels, path.Child("matchLabels"))
	expressions := path.Child("matchExpressions")
	if count := len(selector.MatchExpressions); count > appsv1alpha1.MaxSelectorExpressions {
		return append(errs, field.TooMany(expressions, count, appsv1alpha1.MaxSelectorExpressions))
	}
	for i, expression := range selector.MatchExpressions {
		errs = append(errs, matchExpression(expression, expressions.Index(i))...)
	}
	return errs
}

func matchLabels(labels map[string]string, path *field.Path) field.ErrorList {
	if count := len(labels); count > appsv1alpha1.MaxSelectorLabels {
		return field.ErrorList{field.TooMany(path, count, appsv1alpha1.MaxSelectorLabels)}
	}
	for key, value := range labels {
		if len(key) > appsv1alpha1.MaxLabelKeyBytes {
			return field.ErrorList{field.TooLong(path, "", appsv1alpha1.MaxLabelKeyBytes)}
		}
		if len(value) > appsv1alpha1.MaxLabelValueBytes {
			return field.ErrorList{field.TooLong(path.Key(key), "", appsv1alpha1.MaxLabelValueBytes)}
		}
	}
	return nil
}

func matchExpression(expression metav1.LabelSelectorRequirement, path *field.Path) field.ErrorList {
	if len(expression.Key) > appsv1alpha1.MaxLabelKeyBytes {
		return field.ErrorList{field.TooLong(path.Child("key"), "", appsv1alpha1.MaxLabelKeyBytes)}
	}
	if count := len(expression.Values); count > appsv1alpha1.MaxSelectorValues {
		return field.ErrorList{field.TooMany(path.Child("values"), count, appsv1alpha1.MaxSelectorValues)}
	}
	for i, value := range expression.Values {
		if len(value) > appsv1alpha1.MaxLabelValueBytes {
			return field.ErrorList{field.TooLong(path.Child("values").Index(i), "", appsv1alpha1.MaxLabelValueBytes)}
		}
	}
	return nil
}

// countValues counts the labels and values of a selector. Each is a separate string in memory.
func countValues(selector *metav1.LabelSelector) int {
	if selector == nil {
		return 0
	}
	count := len(selector.MatchLabels)
	for _, expression := range selector.MatchExpressions {
		count += len(expression.Values)
	}
	return count
}

// encodedSize returns the size of a spec as compact JSON. A spec with malformed raw JSON, which
// cannot be encoded, is larger than every bound.
func encodedSize(spec any) int {
	size := counter(0)
	encoder := json.NewEncoder(&size)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(spec); err != nil {
		return math.MaxInt32
	}
	return int(size)
}

// Encoded returns the bound that a spec in compact JSON exceeds, without decoding it; empty when
// it is within the bound. It counts <, > and & as one byte each, escaped or not.
func Encoded(spec []byte, most int) field.ErrorList {
	size := len(spec)
	for _, escaped := range []string{`\u003c`, `\u003e`, `\u0026`} {
		size -= bytes.Count(spec, []byte(escaped)) * (len(escaped) - 1)
	}
	return overSize(size, field.NewPath("spec"), most)
}

func overSize(size int, path *field.Path, most int) field.ErrorList {
	if size <= most {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
		"has %d bytes as JSON, at most %d are allowed: split the resource into several", size, most))}
}

// counter is a writer that counts bytes.
type counter int

// Write counts and drops p.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
