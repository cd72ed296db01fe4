package spec

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// parameters is the literal document of a module. Its fields are the fields that the library in
// policies reads; fields that are not set are left out, which the library treats as "for all".
type parameters struct {
	Name           string                       `json:"name"`
	Stage          appsv1alpha1.TransitionStage `json:"stage"`
	Enforcement    appsv1alpha1.Enforcement     `json:"enforcement"`
	Conditions     []string                     `json:"conditions,omitempty"`
	Filter         *metav1.LabelSelector        `json:"filter,omitempty"`
	Requires       *metav1.LabelSelector        `json:"requires,omitempty"`
	MaxUnavailable *bound                       `json:"max_unavailable,omitempty"`
	MinAvailable   *bound                       `json:"min_available,omitempty"`
	FailurePolicy  appsv1alpha1.FailurePolicy   `json:"failure_policy,omitempty"`
	MinApprovals   int32                        `json:"min_approvals,omitempty"`
	AllowAuthor    *bool                        `json:"allow_author,omitempty"`
}

// bound has exactly one field set.
type bound struct {
	Count   *int `json:"count,omitempty"`
	Percent *int `json:"percent,omitempty"`
}

// ruleParameters returns the parameters of a valid rule. The service of a webhook and the body of its
// calls are not among them: no Rego reads them.
func ruleParameters(rule appsv1alpha1.TransitionRule) parameters {
	found := parameters{
		Name:        rule.Name,
		Stage:       rule.Stage,
		Enforcement: rule.Enforcement,
		// A set in the API: the order of a user's list must not make another module.
		Conditions: slices.Sorted(slices.Values(rule.Conditions)),
	}
	if rule.Filter != nil && !isEmpty(rule.Filter.LabelSelector) {
		found.Filter = rule.Filter.LabelSelector
	}
	if rule.LabelCheck != nil {
		found.Requires = rule.LabelCheck.Requires
	}
	if rule.AvailablePolicy != nil {
		found.MaxUnavailable = parseBound(rule.AvailablePolicy.MaxUnavailableValue)
		found.MinAvailable = parseBound(rule.AvailablePolicy.MinAvailableValue)
	}
	if rule.Approval != nil {
		found.MinApprovals, found.AllowAuthor = rule.Approval.MinApprovals, &rule.Approval.AllowAuthor
	}
	if rule.Webhook != nil {
		found.FailurePolicy = rule.Webhook.FailurePolicy
	}
	return found
}

// isEmpty reports whether a selector matches everything. An unset selector is empty.
func isEmpty(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// parseBound returns a valid value as a bound; nil if the value is unset.
func parseBound(value *intstr.IntOrString) *bound {
	if value == nil {
		return nil
	}
	if percent, ok := parsePercent(*value); ok && percent > 0 {
		return &bound{Percent: &percent}
	}
	count := 0 // also for "0%": a percentage is never rounded to 0
	if value.Type == intstr.Int {
		count = value.IntValue()
	}
	return &bound{Count: &count}
}

// parsePercent parses "25%", and only that: a whole number and a percent sign.
func parsePercent(value intstr.IntOrString) (int, bool) {
	digits, found := strings.CutSuffix(value.StrVal, "%")
	if value.Type != intstr.String || !found || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	percent, err := strconv.Atoi(digits)
	return percent, err == nil
}
