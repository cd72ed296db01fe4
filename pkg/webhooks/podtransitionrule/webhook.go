// Package podtransitionrule answers admission requests for PodTransitionRules: it
// folds the older spellings into the current ones, and denies what the schema cannot
// judge. Besides the object it looks at the PodTransitionPolicies that it refers to.
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
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/rule/spec"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// Paths under which the handlers are served; the manifests name them.
const (
	MutatePath   = "/mutate-apps-kusionstack-io-v1alpha1-podtransitionrule"
	ValidatePath = "/validate-apps-kusionstack-io-v1alpha1-podtransitionrule"
)

// Mutator folds spellings.
type Mutator struct{ decoder admission.Decoder }

// NewMutator returns the mutating webhook.
func NewMutator(decoder admission.Decoder) *Mutator { return &Mutator{decoder: decoder} }

// Handle rewrites older spellings. An object that cannot be decoded, or is too large to be, passes:
// the schema is checked next, and its message names the field; the Validator denies the rest.
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
	folded := rule.DeepCopy()
	var warnings []string
	for i := range folded.Spec.Rules {
		path := rulesPath().Index(i)
		found, errs := spec.Normalize(&folded.Spec.Rules[i], path)
		if len(errs) > 0 {
			return invalid(rule, errs)
		}
		warnings = append(warnings, found...)
	}
	response := patch(rule, folded)
	response.Warnings = warnings
	return response
}

// patch leads from one rule to the other. Both are written by the same type, so fields
// that this version does not know are in neither, and stay as they are.
func patch(from, to *appsv1alpha1.PodTransitionRule) admission.Response {
	before, err := json.Marshal(from)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the rule: %w", err))
	}
	after, err := json.Marshal(to)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the folded rule: %w", err))
	}
	return admission.PatchResponseFromRaw(before, after)
}

// Validator denies what cannot be evaluated.
type Validator struct {
	decoder  admission.Decoder
	policies []client.Reader
	checker  Checker
	checkURL CheckURL
}

// NewValidator returns the validating webhook. cached holds PodTransitionPolicies; live
// reads the API server, for those that the cache does not have, or not as they are now:
// a policy and its users are often applied together.
func NewValidator(decoder admission.Decoder, cached, live client.Reader, checker Checker, checkURL CheckURL) *Validator {
	return &Validator{decoder: decoder, policies: []client.Reader{cached, live}, checker: checker, checkURL: checkURL}
}

// Handle checks a rule. One that is being deleted, and one whose spec stays as it is,
// always pass: a finalizer or a label can always be taken off.
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
	if len(errs) == 0 { // nothing costly is done for a rule that is denied anyway
		var err error
		if early, errs, err = v.validateCustom(ctx, rule, old); err != nil {
			return inspection.Unknown(err)
		}
	}
	if len(errs) > 0 {
		return invalid(rule, errs)
	}
	return admission.Allowed("").WithWarnings(append(early, warnings(rule)...)...)
}

func rulesPath() *field.Path { return field.NewPath("spec", "rules") }

// validate checks what CEL in the schema cannot: selectors, addresses, certificates and
// field paths. No address is dialled: admission would wait for what answers there.
func validate(rule *appsv1alpha1.PodTransitionRule) field.ErrorList {
	errs := objectbounds.Rule(&rule.Spec)
	if len(errs) > 0 {
		return errs // nothing costly is done with it
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

// warnings are what of a valid rule will probably not do what was meant.
func warnings(rule *appsv1alpha1.PodTransitionRule) []string {
	found := neverPasses(rule)
	for i := range rule.Spec.Rules {
		found = append(found, spec.Warnings(rule.Spec.Rules[i], rulesPath().Index(i))...)
	}
	return found
}

// neverPasses warns of bounds that leave no room whatever the number of pods. Others
// show up in the condition Stalled.
func neverPasses(rule *appsv1alpha1.PodTransitionRule) []string {
	var warnings []string
	for i, r := range rule.Spec.Rules {
		if r.AvailablePolicy != nil && r.AvailablePolicy.MinAvailableValue != nil && r.AvailablePolicy.MinAvailableValue.String() == "100%" {
			warnings = append(warnings, fmt.Sprintf("%s: with 100%% no available pod will ever pass this rule",
				rulesPath().Index(i).Child("availablePolicy", "minAvailableValue")))
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
