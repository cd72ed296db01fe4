// Package podtransitionpolicy contains the admission webhooks of PodTransitionPolicies: they
// deny a schema that cannot be used and a module that does not compile, an edit that breaks
// the parameters of existing users, and the deletion of a policy in use.
package podtransitionpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/policyusers"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// Paths under which the handlers are served; the manifests name them.
const (
	ValidatePath = "/validate-apps-kusionstack-io-v1alpha1-podtransitionpolicy"
	DeletePath   = "/delete-apps-kusionstack-io-v1alpha1-podtransitionpolicy"
)

// Checker checks modules. It is an *inspection.Checker.
type Checker interface {
	Check(ctx context.Context, modules ...inspection.Module) (field.ErrorList, error)

	// Known returns the inspection of a module that was checked before and has no problems.
	Known(module inspection.Module) (opa.Inspection, bool)
}

// Validator is the webhook of CREATE and UPDATE.
type Validator struct {
	decoder   admission.Decoder
	cached    client.Reader
	apiReader client.Reader
	checker   Checker
	mayRead   MayRead
}

// NewValidator returns the webhook. cached is a cache of PodTransitionPolicies, and of PodTransitionRules with the
// index policyusers.Field. apiReader reads imports that the cache does not have yet.
func NewValidator(decoder admission.Decoder, cached, apiReader client.Reader, checker Checker, mayRead MayRead) *Validator {
	return &Validator{decoder: decoder, cached: cached, apiReader: apiReader, checker: checker, mayRead: mayRead}
}

// Handle checks a policy. A terminating policy, and an edit without a change of the spec, always
// pass, so that a finalizer or a label can be removed.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if response, decided := inspection.BySize(req, kind(), appsv1alpha1.MaxPolicySpecBytes); decided {
		return response
	}
	policy, old := &appsv1alpha1.PodTransitionPolicy{}, (*appsv1alpha1.PodTransitionPolicy)(nil)
	if err := v.decoder.Decode(req, policy); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodTransitionPolicy: %w", err))
	}
	if req.Operation == admissionv1.Update {
		old = &appsv1alpha1.PodTransitionPolicy{}
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored PodTransitionPolicy: %w", err))
		}
		old.Spec.Description = policy.Spec.Description
	}
	if policy.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(policy.Spec, old.Spec) {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, inspection.Timeout)
	defer cancel()
	warnings, errs, err := v.validate(ctx, req.UserInfo, policy, old)
	if err != nil {
		return inspection.Unknown(err)
	}
	if len(errs) > 0 {
		return inspection.Invalid(kind(), policy.Name, errs)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

func kind() schema.GroupKind {
	return appsv1alpha1.GroupVersion().WithKind("PodTransitionPolicy").GroupKind()
}

// validate checks the spec, and what an edit does to the rules that use the policy and to the policies that import it; old is
// nil for a new policy.
func (v *Validator) validate(
	ctx context.Context, requester authenticationv1.UserInfo, policy, old *appsv1alpha1.PodTransitionPolicy,
) (warnings []string, errs field.ErrorList, err error) {
	spec := field.NewPath("spec")
	declared, errs := parameters.Parse(policy.Spec.Parameters, spec.Child("parameters"))
	if imports.IsLibrary(policy) && policy.Spec.Parameters != nil {
		errs = append(errs, field.Forbidden(spec.Child("parameters"), "a library has no parameters: pass them as arguments of its functions"))
	}
	if len(errs) > 0 {
		return nil, errs, nil // without the schema the module cannot be checked
	}
	known, err := policyusers.Policies(ctx, v.cached)
	if err != nil {
		return nil, nil, err
	}
	errs, warnings, err = v.checkLive(ctx, known, policy)
	missing := &imports.NotFoundError{}
	switch {
	case errors.As(err, &missing):
		warnings = append(warnings, fmt.Sprintf("%s: %v: until it is created, rules that use it withhold every pod, reason PolicyNotFound",
			spec.Child("imports"), missing))
	case err != nil:
		return nil, nil, err
	}
	if old == nil {
		return warnings, errs, nil
	}
	broken, err := v.broken(ctx, policy, declared, old)
	if err != nil {
		return nil, nil, err
	}
	importers, err := v.confirmedImporters(ctx, known, policy, old)
	switch {
	case err != nil:
		return nil, nil, err
	case len(broken)+len(importers) == 0:
	case ignoresUsers(policy):
		warnings = append(warnings, heldBack(len(broken), len(importers)))
	default:
		errs = append(errs, v.denials(ctx, requester, broken, importers)...)
	}
	return warnings, errs, nil
}

// confirmedImporters returns the policies that an edit breaks, which import the policy: the cache may have an importer as it was before
// an edit that allows this one.
func (v *Validator) confirmedImporters(
	ctx context.Context, known imports.Policies, policy, old *appsv1alpha1.PodTransitionPolicy,
) ([]brokenImporter, error) {
	importers, err := v.brokenImporters(ctx, known, policy, old)
	if err != nil || len(importers) == 0 {
		return importers, err
	}
	names := make([]string, 0, maxConfirmed)
	for _, one := range importers[:min(len(importers), maxConfirmed)] {
		names = append(names, one.name)
	}
	if err := v.refresh(ctx, known, names); err != nil {
		return nil, err
	}
	return v.brokenImporters(ctx, known, policy, old)
}

// checkLive is check, and once more with live imports if the policy is wrong: the cache may have an import as it was before an
// edit that the module needs.
func (v *Validator) checkLive(
	ctx context.Context, known imports.Policies, policy *appsv1alpha1.PodTransitionPolicy,
) (errs field.ErrorList, warnings []string, err error) {
	errs, warnings, err = v.check(ctx, known, policy)
	if err != nil || len(errs) == 0 || len(policy.Spec.Imports) == 0 {
		return errs, warnings, err
	}
	if err := v.refresh(ctx, known, policy.Spec.Imports); err != nil {
		return nil, nil, err
	}
	return v.check(ctx, known, policy)
}

// check compiles the module of a policy with what it imports, and returns what is wrong with its fields, and the probable mistakes in
// the module. The error is an *imports.NotFoundError for an import that does not exist; any other means that the result is unknown.
func (v *Validator) check(
	ctx context.Context, known imports.Policies, policy *appsv1alpha1.PodTransitionPolicy,
) (errs field.ErrorList, warnings []string, err error) {
	declared, errs := parameters.Parse(policy.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		return errs, nil, nil
	}
	types, err := declared.JSONSchema()
	if err != nil {
		return nil, nil, err
	}
	source, err := v.source(ctx, known, policy)
	wrong := &field.Error{}
	switch {
	case errors.As(err, &wrong):
		return field.ErrorList{wrong}, nil, nil
	case errors.Is(err, objectbounds.ErrTooLarge):
		return field.ErrorList{field.Invalid(field.NewPath("spec", "imports"), policy.Spec.Imports, err.Error())}, nil, nil
	case err != nil:
		return nil, nil, err
	}
	module := inspection.Module{
		Owner: inspection.Cluster, Path: field.NewPath("spec", "module"), File: policy.Name + ".rego", Source: source, ParametersSchema: types,
	}
	if errs, err = v.checker.Check(ctx, module); err != nil {
		return nil, nil, err
	}
	found, _ := v.checker.Known(module)
	return errs, inspection.Warnings(module.Path, found), nil
}

// source returns the module of a policy with what it imports. It adds imports to known that the cache does not have yet.
func (v *Validator) source(ctx context.Context, known imports.Policies, policy *appsv1alpha1.PodTransitionPolicy) (string, error) {
	for {
		source, err := known.Source(policy)
		missing := &imports.NotFoundError{}
		if !errors.As(err, &missing) {
			return source, err
		}
		if readErr := v.refresh(ctx, known, []string{missing.Name}); readErr != nil {
			return "", readErr
		}
		if _, exists := known[missing.Name]; !exists {
			return "", err
		}
	}
}

// refresh replaces policies by what the API server has.
func (v *Validator) refresh(ctx context.Context, known imports.Policies, names []string) error {
	for _, name := range names {
		found := &appsv1alpha1.PodTransitionPolicy{}
		err := v.apiReader.Get(ctx, client.ObjectKey{Name: name}, found)
		switch {
		case apierrors.IsNotFound(err):
			delete(known, name)
		case err != nil:
			return fmt.Errorf("reading PodTransitionPolicy %q: %w", name, err)
		default:
			known[name] = found
		}
	}
	return nil
}
