// Package podtransitionpolicy contains the admission webhooks of PodTransitionPolicies: they
// deny a schema that cannot be used and a module that does not compile, an edit that breaks
// the parameters of existing users, and the deletion of a policy in use.
package podtransitionpolicy

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule/parameters"
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
}

// Validator is the webhook of CREATE and UPDATE.
type Validator struct {
	decoder admission.Decoder
	cached  client.Reader
	checker Checker
	mayRead MayRead
}

// NewValidator returns the webhook. cached is a cache of PodTransitionRules with the
// index policyusers.Field.
func NewValidator(decoder admission.Decoder, cached client.Reader, checker Checker, mayRead MayRead) *Validator {
	return &Validator{decoder: decoder, cached: cached, checker: checker, mayRead: mayRead}
}

// Handle checks a policy. A terminating policy, and an edit without a change of the spec, always
// pass, so that a finalizer or a label can be removed.
func (v *Validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if response, decided := inspection.BySize(req, kind(), appsv1alpha1.MaxPolicySpecBytes); decided {
		return response
	}
	policy, old := &appsv1alpha1.PodTransitionPolicy{}, &appsv1alpha1.PodTransitionPolicy{}
	if err := v.decoder.Decode(req, policy); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodTransitionPolicy: %w", err))
	}
	if req.Operation == admissionv1.Update {
		if err := v.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored PodTransitionPolicy: %w", err))
		}
	}
	if policy.DeletionTimestamp != nil || equality.Semantic.DeepEqual(policy.Spec, old.Spec) {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, inspection.Timeout)
	defer cancel()
	errs, broken, err := v.validate(ctx, policy, old)
	if err != nil {
		return inspection.Unknown(err)
	}
	response := admission.Allowed("")
	switch {
	case len(broken) > 0 && ignoresUsers(policy):
		response = response.WithWarnings(heldBack(len(broken)))
	case len(broken) > 0:
		errs = append(errs, v.denial(ctx, req.UserInfo, broken))
	}
	if len(errs) > 0 {
		return inspection.Invalid(kind(), policy.Name, errs)
	}
	return response
}

func kind() schema.GroupKind {
	return appsv1alpha1.GroupVersion().WithKind("PodTransitionPolicy").GroupKind()
}

// validate checks the spec, and returns the users that it breaks; old is zero for a new
// policy. Unchanged parts are not checked again.
func (v *Validator) validate(ctx context.Context, policy, old *appsv1alpha1.PodTransitionPolicy) (field.ErrorList, []brokenUser, error) {
	spec := field.NewPath("spec")
	declared, errs := parameters.Parse(policy.Spec.Parameters, spec.Child("parameters"))
	if len(errs) > 0 {
		return errs, nil, nil // without the schema the module cannot be checked
	}
	sameSchema := old.Spec.Module != "" && equality.Semantic.DeepEqual(policy.Spec.Parameters, old.Spec.Parameters)
	if !sameSchema || policy.Spec.Module != old.Spec.Module {
		types, err := declared.JSONSchema()
		if err != nil {
			return nil, nil, err
		}
		errs, err = v.checker.Check(ctx, inspection.Module{
			Owner: inspection.Cluster, Path: spec.Child("module"), File: policy.Name + ".rego", Source: policy.Spec.Module, ParametersSchema: types,
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if sameSchema || old.Spec.Module == "" {
		return errs, nil, nil
	}
	broken, err := v.broken(ctx, policy.Name, declared, old)
	return errs, broken, err
}
