package doctor

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// values are the values of one label that selectors require or exclude.
type values struct {
	limited           bool            // only allowed values match
	allowed, excluded map[string]bool // In, NotIn
	present, absent   bool            // Exists or In, DoesNotExist
}

// contradiction returns the first label for which no value matches all selectors; empty if a pod can match
// all of them. nil selectors require nothing.
func contradiction(selectors ...*metav1.LabelSelector) string {
	required := map[string]*values{}
	of := func(key string) *values {
		if required[key] == nil {
			required[key] = &values{allowed: map[string]bool{}, excluded: map[string]bool{}}
		}
		return required[key]
	}
	for _, selects := range selectors {
		if selects == nil {
			continue
		}
		for key, value := range selects.MatchLabels {
			of(key).in([]string{value})
		}
		for _, expression := range selects.MatchExpressions {
			of(expression.Key).add(expression)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(required)) {
		if required[key].impossible() {
			return key
		}
	}
	return ""
}

func (v *values) add(expression metav1.LabelSelectorRequirement) {
	switch expression.Operator {
	case metav1.LabelSelectorOpIn:
		v.in(expression.Values)
	case metav1.LabelSelectorOpNotIn:
		for _, value := range expression.Values {
			v.excluded[value] = true
		}
	case metav1.LabelSelectorOpExists:
		v.present = true
	case metav1.LabelSelectorOpDoesNotExist:
		v.absent = true
	}
}

// in limits the label to some values.
func (v *values) in(some []string) {
	v.present = true
	if !v.limited {
		v.limited = true
		for _, value := range some {
			v.allowed[value] = true
		}
		return
	}
	maps.DeleteFunc(v.allowed, func(value string, _ bool) bool { return !slices.Contains(some, value) })
}

func (v *values) impossible() bool {
	if v.present && v.absent {
		return true
	}
	if !v.limited {
		return false
	}
	for value := range v.allowed {
		if !v.excluded[value] {
			return false
		}
	}
	return true
}
