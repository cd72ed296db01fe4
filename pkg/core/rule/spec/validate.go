package spec

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
)

const (
	// MaxModuleBytes bounds the source of a user's module, as in the CRD.
	MaxModuleBytes = 16384

	// maxApprovals is the largest minApprovals, as in the CRD.
	maxApprovals = 10

	adaptivePolicy = "is not evaluated: use maxUnavailableValue or minAvailableValue"
)

// Validate returns why a normalized rule cannot be compiled; a rule without errors compiles. path
// is the path of the rule ("spec.rules[0]"). Errors are in the order of the fields.
//
// Most of it is also CEL in the CRD. It is repeated here because a stored rule must never compile
// to something else, even if it bypassed admission.
func Validate(rule appsv1alpha1.TransitionRule, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if rule.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "a rule needs a name"))
	}
	errs = append(errs, validateEnum(rule.Stage, path.Child("stage"),
		appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck)...)
	errs = append(errs, validateEnum(rule.Enforcement, path.Child("enforcement"),
		appsv1alpha1.EnforcementEnforce, appsv1alpha1.EnforcementWarn, appsv1alpha1.EnforcementDryRun)...)
	if rule.Filter != nil {
		errs = append(errs, validateSelector(rule.Filter.LabelSelector, path.Child("filter", "labelSelector"))...)
	}
	errs = append(errs, validateKinds(rule, path)...)
	if rule.AvailablePolicy != nil {
		errs = append(errs, validateAvailablePolicy(*rule.AvailablePolicy, path.Child("availablePolicy"))...)
	}
	if rule.LabelCheck != nil {
		errs = append(errs, validateLabelCheck(*rule.LabelCheck, path.Child("labelCheck"))...)
	}
	if rule.Approval != nil {
		errs = append(errs, validateApproval(rule, path)...)
	}
	if rule.Webhook != nil {
		errs = append(errs, validateWebhook(*rule.Webhook, path.Child("webhook"))...)
	}
	if rule.Rego != nil {
		errs = append(errs, validateRego(*rule.Rego, path.Child("rego"))...)
	}
	return errs
}

func validateEnum[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func validateKinds(rule appsv1alpha1.TransitionRule, path *field.Path) field.ErrorList {
	kinds := listKinds(rule)
	if len(kinds) == 0 {
		return field.ErrorList{field.Required(path,
			"a rule must have exactly one of availablePolicy, labelCheck, approval, webhook or rego")}
	}
	errs := field.ErrorList{}
	for _, kind := range kinds[1:] {
		errs = append(errs, field.Forbidden(path.Child(string(kind)),
			fmt.Sprintf("a rule must have exactly one kind of check, and it has %s already", kinds[0])))
	}
	return errs
}

// validateRego checks the form only: the engine checks the module, and the schema of the policy the
// parameters.
func validateRego(rego appsv1alpha1.RegoRule, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	switch {
	case rego.Module == "" && rego.PolicyRef == nil:
		errs = append(errs, field.Required(path, "rego must have exactly one of module or policyRef"))
	case rego.Module != "" && rego.PolicyRef != nil:
		errs = append(errs, field.Forbidden(path.Child("policyRef"),
			"rego must have exactly one of module or policyRef, and it has module already"))
	case rego.PolicyRef != nil && rego.PolicyRef.Name == "":
		errs = append(errs, field.Required(path.Child("policyRef", "name"), "name the PodTransitionPolicy"))
	}
	if len(rego.Module) > MaxModuleBytes {
		errs = append(errs, field.TooLong(path.Child("module"), "", MaxModuleBytes))
	}
	if rego.Parameters != nil && !isObject(rego.Parameters.Raw) {
		errs = append(errs, field.Invalid(path.Child("parameters"), "", "must be an object: {name: value}"))
	}
	return errs
}

// isObject reports whether JSON is an object. An empty document counts as an object.
func isObject(document []byte) bool {
	if len(document) == 0 {
		return true
	}
	// null decodes into a nil map without an error.
	decoded := map[string]json.RawMessage{}
	return json.Unmarshal(document, &decoded) == nil && decoded != nil
}

func validateApproval(rule appsv1alpha1.TransitionRule, path *field.Path) field.ErrorList {
	errs := field.ErrorList{}
	if rule.Stage != appsv1alpha1.StagePreCheck {
		errs = append(errs, field.Invalid(path.Child("stage"), rule.Stage, "approval applies in the stage PreCheck only"))
	}
	if rule.ExemptRevisions == appsv1alpha1.ExemptOutdated {
		errs = append(errs, field.Invalid(path.Child("exemptRevisions"), rule.ExemptRevisions,
			"does not apply to approval: it exempts every pod that a rollout replaces"))
	}
	if rule.Approval.MinApprovals < 1 || rule.Approval.MinApprovals > maxApprovals {
		errs = append(errs, field.Invalid(path.Child("approval", "minApprovals"), rule.Approval.MinApprovals,
			fmt.Sprintf("must be from 1 to %d", maxApprovals)))
	}
	return errs
}

func validateLabelCheck(check appsv1alpha1.LabelCheck, path *field.Path) field.ErrorList {
	if check.Requires == nil {
		return field.ErrorList{field.Required(path.Child("requires"), "labelCheck requires a label selector")}
	}
	return validateSelector(check.Requires, path.Child("requires"))
}

// validateSelector accepts selectors that Kubernetes can evaluate, and unset selectors.
func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if errs := objectbounds.Selector(selector, path); len(errs) > 0 {
		return errs
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(selector), err.Error())}
	}
	return nil
}

func validateAvailablePolicy(available appsv1alpha1.AvailablePolicy, path *field.Path) field.ErrorList {
	errs := requireBound(available, path)
	errs = append(errs, validateBound(available.MaxUnavailableValue, path.Child("maxUnavailableValue"))...)
	errs = append(errs, validateBound(available.MinAvailableValue, path.Child("minAvailableValue"))...)
	errs = append(errs, validateBound(available.Surge, path.Child("surge"))...)
	if available.MaxUnavailablePolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("maxUnavailablePolicy"), adaptivePolicy))
	}
	if available.MinAvailablePolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("minAvailablePolicy"), adaptivePolicy))
	}
	return errs
}

// validateBound accepts a count from 0, and a percentage from 0 to 100. Leading zeros are
// rejected as in the CRD.
func validateBound(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	percent, isPercent := parsePercent(*value)
	if isPercent && percent <= 100 && value.StrVal == fmt.Sprintf("%d%%", percent) {
		return nil
	}
	if value.Type == intstr.Int && value.IntValue() >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value.String(), `must be a whole number from 0, or a percentage from "0%" to "100%" without spaces`)}
}
