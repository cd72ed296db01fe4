package podtransitionrule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// Checker checks modules. It is an *inspection.Checker.
type Checker interface {
	Check(ctx context.Context, modules ...inspection.Module) (field.ErrorList, error)

	// Known returns the inspection of a module that was checked before and has no problems.
	Known(module inspection.Module) (opa.Inspection, bool)
}

// validateCustom checks rules of kind rego that are new or have changed. A stored rule passes,
// because an edit elsewhere in the object must not fail on it. A rule may be created before its
// policy, with a warning: its pods wait, reason PolicyNotFound, until the policy exists. An error
// means that the result is unknown.
func (v *Validator) validateCustom(
	ctx context.Context, object, old *appsv1alpha1.PodTransitionRule,
) (warnings []string, errs field.ErrorList, err error) {
	known := map[string]*appsv1alpha1.RegoRule{}
	inspected := map[string]bool{}
	for _, rule := range old.Spec.Rules {
		if rule.Rego != nil {
			known[rule.Name] = rule.Rego
			inspected[rule.Rego.Module] = true
		}
	}
	var modules []inspection.Module
	var inline []int
	for i, rule := range object.Spec.Rules {
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w", rulesPath().Index(i), inspection.ErrTimeout)
		}
		if rule.Rego == nil || equality.Semantic.DeepEqual(rule.Rego, known[rule.Name]) {
			continue
		}
		path := rulesPath().Index(i).Child("rego")
		if rule.Rego.PolicyRef != nil {
			exists, found, err := v.validateReference(ctx, rule.Rego, path)
			if err != nil {
				return nil, nil, err
			}
			if !exists {
				warnings = append(warnings, notThere(rule, path))
			}
			errs = append(errs, found...)
			continue
		}
		errs = append(errs, validateOpen(rule.Rego, path)...)
		inline = append(inline, i)
		if !inspected[rule.Rego.Module] {
			inspected[rule.Rego.Module] = true
			modules = append(modules, inspection.Module{
				Owner: object.Namespace, Path: path.Child("module"), File: object.Name + "/" + rule.Name + ".rego", Source: rule.Rego.Module,
			})
		}
	}
	found, err := v.checker.Check(ctx, modules...)
	if errs = append(errs, found...); err == nil && len(errs) == 0 {
		for _, i := range inline {
			warnings = append(warnings, v.moduleWarnings(object.Spec.Rules[i].Rego, rulesPath().Index(i).Child("rego"))...)
		}
	}
	return warnings, errs, err
}

// maxParameterWarnings is the number of warnings about the parameters of one rule.
const maxParameterWarnings = 4

// moduleWarnings returns the probable mistakes in an inline module, and the differences between the parameters that it reads and the
// parameters that its rule sets: no schema rejects a name that is misspelt. It returns none for a module that only an
// earlier request has checked, and whose result is not cached any more.
func (v *Validator) moduleWarnings(rego *appsv1alpha1.RegoRule, path *field.Path) []string {
	inspected, known := v.checker.Known(inspection.Module{Source: rego.Module})
	if !known {
		return nil
	}
	warnings := inspection.Warnings(path.Child("module"), inspected)
	problems, err := inspected.ParameterHints(rawParameters(rego))
	if err != nil {
		return warnings // the schema of the CRD rejects parameters that are no object
	}
	for _, problem := range problems[:min(len(problems), maxParameterWarnings)] {
		warnings = append(warnings, fmt.Sprintf("%s: %s (row %d, column %d of the module)", path.Child("parameters"), problem.Message, problem.Row, problem.Column))
	}
	return warnings
}

// notThere returns the warning about a rule that is created before its policy.
func notThere(rule appsv1alpha1.TransitionRule, path *field.Path) string {
	return fmt.Sprintf("%s: there is no PodTransitionPolicy %q: until it is created the rule withholds every pod, reason PolicyNotFound",
		path.Child("policyRef", "name"), rule.Rego.PolicyRef.Name)
}

// validateOpen bounds the parameters of an inline module, which has no schema for them.
func validateOpen(rego *appsv1alpha1.RegoRule, path *field.Path) field.ErrorList {
	if len(rawParameters(rego)) > parameters.MaxBytes {
		return field.ErrorList{field.TooLong(path.Child("parameters"), "", parameters.MaxBytes)}
	}
	return nil
}

func rawParameters(rego *appsv1alpha1.RegoRule) json.RawMessage {
	if rego.Parameters == nil {
		return nil
	}
	return rego.Parameters.Raw
}

// validateReference checks a rule against the policy in the cache, and if that denies it, against
// the policy in the API server. Without a policy it checks only the size of the parameters.
func (v *Validator) validateReference(
	ctx context.Context, rego *appsv1alpha1.RegoRule, path *field.Path,
) (exists bool, errs field.ErrorList, err error) {
	for _, reader := range v.policies {
		policy := &appsv1alpha1.PodTransitionPolicy{}
		err := reader.Get(ctx, types.NamespacedName{Name: rego.PolicyRef.Name}, policy)
		if client.IgnoreNotFound(err) != nil {
			return false, nil, unread(ctx, rego.PolicyRef.Name, err)
		}
		if apierrors.IsNotFound(err) {
			exists, errs = false, validateOpen(rego, path)
			continue
		}
		if exists, errs = true, fits(rego, policy, path); len(errs) == 0 {
			break
		}
	}
	return exists, errs, nil
}

func unread(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		err = errors.Join(inspection.ErrTimeout, err)
	}
	return fmt.Errorf("reading PodTransitionPolicy %q: %w", name, err)
}

// fits returns the errors in a rule's parameters against its policy.
func fits(rego *appsv1alpha1.RegoRule, policy *appsv1alpha1.PodTransitionPolicy, path *field.Path) field.ErrorList {
	name := path.Child("policyRef", "name")
	if policy.DeletionTimestamp != nil {
		return field.ErrorList{field.Invalid(name, policy.Name, "this PodTransitionPolicy is being deleted")}
	}
	if imports.IsLibrary(policy) {
		return field.ErrorList{field.Invalid(name, policy.Name, "this PodTransitionPolicy is a library: refer to one that imports it")}
	}
	schema, errs := parameters.Parse(policy.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		return field.ErrorList{field.Invalid(name, policy.Name, fmt.Sprintf(
			"this PodTransitionPolicy cannot be used until its schema is right: %v", errs[0]))}
	}
	_, errs = schema.Complete(rawParameters(rego), path.Child("parameters"))
	return errs
}
