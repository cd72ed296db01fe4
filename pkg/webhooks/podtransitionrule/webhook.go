// Package podtransitionrule contains the admission webhooks of PodTransitionRules: they
// normalize older spellings, and deny errors that the schema cannot detect. Besides the
// object they read the PodTransitionPolicies that it refers to.
package podtransitionrule

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// Paths under which the handlers are served; the manifests name them.
const (
	MutatePath   = "/mutate-apps-kusionstack-io-v1alpha1-podtransitionrule"
	ValidatePath = "/validate-apps-kusionstack-io-v1alpha1-podtransitionrule"
)

// Mutator normalizes spellings.
type Mutator struct{ decoder admission.Decoder }

// NewMutator returns the mutating webhook.
func NewMutator(decoder admission.Decoder) *Mutator { return &Mutator{decoder: decoder} }

// Handle rewrites older spellings. An object that cannot be decoded, or is too large, passes: the
// schema is checked next, and its message names the field; the Validator denies the others.
func (m *Mutator) Handle(_ context.Context, req admission.Request) admission.Response {
	if _, decided := inspection.BySize(req, kind(), appsv1alpha1.MaxRuleSpecBytes); decided {
		return admission.Allowed("")
	}
	rule := &appsv1alpha1.PodTransitionRule{}
	if err := m.decoder.Decode(req, rule); err != nil {
		return admission.Allowed("")
	}
	if rule.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	normalized := rule.DeepCopy()
	var warnings []string
	for i := range normalized.Spec.Rules {
		path := rulesPath().Index(i)
		found, errs := spec.Normalize(&normalized.Spec.Rules[i], path)
		if len(errs) > 0 {
			return invalid(rule, errs)
		}
		warnings = append(warnings, found...)
	}
	response := patch(rule, normalized)
	response.Warnings = warnings
	return response
}

// patch returns the patch from one rule to the other. Both are encoded by the same type, so
// fields that this version does not know are in neither, and stay as they are.
func patch(from, to *appsv1alpha1.PodTransitionRule) admission.Response {
	before, err := json.Marshal(from)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the rule: %w", err))
	}
	after, err := json.Marshal(to)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the normalized rule: %w", err))
	}
	return admission.PatchResponseFromRaw(before, after)
}

// Validator denies rules that cannot be evaluated.
type Validator struct {
	decoder  admission.Decoder
	policies []client.Reader
	checker  Checker
	checkURL CheckURL
}

// NewValidator returns the validating webhook. cached holds PodTransitionPolicies; apiReader
// reads the API server, for policies that the cache does not have, or not in their current
// version: a policy and its users are often applied together.
func NewValidator(decoder admission.Decoder, cached, apiReader client.Reader, checker Checker, checkURL CheckURL) *Validator {
	return &Validator{decoder: decoder, policies: []client.Reader{cached, apiReader}, checker: checker, checkURL: checkURL}
}

// Handle checks a rule. A terminating rule, and an edit without a change of the spec, always pass,
// so that a finalizer or a label can be removed.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if response, decided := inspection.BySize(req, kind(), appsv1alpha1.MaxRuleSpecBytes); decided {
		return response
	}
	rule, old := &appsv1alpha1.PodTransitionRule{}, &appsv1alpha1.PodTransitionRule{}
	if err := v.decoder.Decode(req, rule); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodTransitionRule: %w", err))
	}
	if req.Operation == admissionv1.Update {
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored PodTransitionRule: %w", err))
		}
	}
	if rule.DeletionTimestamp != nil || len(old.Spec.Rules) > 0 && equality.Semantic.DeepEqual(rule.Spec, old.Spec) {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, inspection.Timeout)
	defer cancel()
	errs := validate(rule)
	if len(errs) == 0 {
		errs = v.validateHosts(rule, old)
	}
	if len(errs) == 0 {
		var err error
		if errs, err = v.validateBudget(ctx, rule, old); err != nil {
			return inspection.Unknown(err)
		}
	}
	var early []string
	if len(errs) == 0 { // a rule that is denied anyway costs nothing further
		var err error
		if early, errs, err = v.validateCustom(ctx, rule, old); err != nil {
			return inspection.Unknown(err)
		}
	}
	if len(errs) > 0 {
		return invalid(rule, errs)
	}
	early = append(early, v.deploymentWarnings(ctx, rule)...)
	return admission.Allowed("").WithWarnings(append(early, warnings(rule)...)...)
}

func rulesPath() *field.Path { return field.NewPath("spec", "rules") }

// validate checks the fields that CEL in the schema cannot check: selectors, addresses, certificates and
// field paths. It connects to no address: admission would wait for the response.
func validate(rule *appsv1alpha1.PodTransitionRule) field.ErrorList {
	errs := objectbounds.Rule(&rule.Spec)
	if len(errs) > 0 {
		return errs // an invalid rule costs nothing further
	}
	path := field.NewPath("spec", "selector")
	selector, err := metav1.LabelSelectorAsSelector(rule.Spec.Selector)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(path, rule.Spec.Selector, err.Error()))
	case rule.Spec.Selector == nil || selector.Empty():
		errs = append(errs, field.Required(path, "an empty selector would catch every pod of the namespace"))
	}
	for i := range rule.Spec.Rules {
		errs = append(errs, spec.Validate(rule.Spec.Rules[i], rulesPath().Index(i))...)
	}
	return errs
}

// warnings returns the settings of a valid rule that are probably mistakes.
func warnings(rule *appsv1alpha1.PodTransitionRule) []string {
	found := passesWithSurge(rule)
	for i := range rule.Spec.Rules {
		found = append(found, spec.Warnings(rule.Spec.Rules[i], rulesPath().Index(i))...)
	}
	return found
}

// passesWithSurge returns a warning for each bound that has capacity only for pods beyond the desired number. Other
// such bounds are reported in the condition Stalled.
func passesWithSurge(rule *appsv1alpha1.PodTransitionRule) []string {
	var warnings []string
	for i, r := range rule.Spec.Rules {
		if why := spec.PermitsNone(r.AvailablePolicy, 0); why != "" && !spec.Surges(r.AvailablePolicy) {
			warnings = append(warnings, fmt.Sprintf("%s: %s", rulesPath().Index(i).Child("availablePolicy"), spec.PassesWithSurge(why)))
		}
	}
	return warnings
}

func kind() schema.GroupKind {
	return appsv1alpha1.GroupVersion().WithKind("PodTransitionRule").GroupKind()
}

func invalid(rule *appsv1alpha1.PodTransitionRule, errs field.ErrorList) admission.Response {
	return inspection.Invalid(kind(), rule.Name, errs)
}
