package spec

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Stage names of older clients.
const (
	stagePreTrafficOff appsv1alpha1.TransitionStage = "PreTrafficOff"
	stagePreTrafficOn  appsv1alpha1.TransitionStage = "PreTrafficOn"
)

// Normalize rewrites a rule to its canonical spelling, in place, and fills in defaults:
//
//   - maxUnavailable.value and minAvailable.value move to maxUnavailableValue and
//     minAvailableValue; both set and different is an error, and then neither is touched;
//   - an availablePolicy without any bound is an error;
//   - webhook.poll moves to clientConfig.poll; both set and different is an error;
//   - the stages PreTrafficOff and PreTrafficOn become PreCheck and PostCheck, with a warning;
//   - no stage is PreCheck, no enforcement is Enforce, no failurePolicy is Fail, no minApprovals is 1, and a poll has the
//     interval and the timeout that the API documents.
//
// path is the path of the rule, for warnings and errors. Normalizing a normalized rule changes
// nothing.
func Normalize(rule *appsv1alpha1.TransitionRule, path *field.Path) (warnings []string, errs field.ErrorList) {
	canonical := map[appsv1alpha1.TransitionStage]appsv1alpha1.TransitionStage{
		stagePreTrafficOff: appsv1alpha1.StagePreCheck,
		stagePreTrafficOn:  appsv1alpha1.StagePostCheck,
	}
	if stage, old := canonical[rule.Stage]; old {
		warnings = append(warnings, fmt.Sprintf("%s: %s is the older name of %s, which is stored instead",
			path.Child("stage"), rule.Stage, stage))
		rule.Stage = stage
	}
	if rule.Stage == "" {
		rule.Stage = appsv1alpha1.StagePreCheck
	}
	if rule.Enforcement == "" {
		rule.Enforcement = appsv1alpha1.EnforcementEnforce
	}
	if available := rule.AvailablePolicy; available != nil {
		path := path.Child("availablePolicy")
		errs = append(errs, normalizeBound(&available.MaxUnavailableValue, &available.MaxUnavailable,
			path.Child("maxUnavailable", "value"), "maxUnavailableValue")...)
		errs = append(errs, normalizeBound(&available.MinAvailableValue, &available.MinAvailable,
			path.Child("minAvailable", "value"), "minAvailableValue")...)
		errs = append(errs, requireBound(*available, path)...)
	}
	if rule.Approval != nil {
		rule.Approval.MinApprovals = cmp.Or(rule.Approval.MinApprovals, 1)
	}
	if rule.Webhook != nil {
		errs = append(errs, normalizeWebhook(rule.Webhook, path.Child("webhook"))...)
	}
	return warnings, errs
}

// requireBound rejects an availablePolicy without bounds. Admission normalizes before the schema is
// checked, and the schema can only count properties: CEL does not see the older spellings, which
// have no type.
func requireBound(available appsv1alpha1.AvailablePolicy, path *field.Path) field.ErrorList {
	available.Surge = nil
	if available != (appsv1alpha1.AvailablePolicy{}) {
		return nil
	}
	return field.ErrorList{field.Required(path,
		"set maxUnavailableValue, such as 25%, minAvailableValue, or both: without a bound every pod would pass")}
}

// normalizeBound moves the nested spelling of a bound, at path, into the canonical field, called
// name.
func normalizeBound(canonical **intstr.IntOrString, nested **appsv1alpha1.AvailableValue,
	path *field.Path, name string,
) field.ErrorList {
	if *nested == nil {
		return nil
	}
	value := (*nested).Value
	if value == nil {
		return field.ErrorList{field.Required(path, "leave out the whole field, or give it a value")}
	}
	if *canonical != nil && **canonical != *value {
		return field.ErrorList{field.Invalid(path, value.String(),
			fmt.Sprintf("differs from %s (%s), which means the same: set one of them", name, *canonical))}
	}
	*canonical, *nested = value, nil
	return nil
}
