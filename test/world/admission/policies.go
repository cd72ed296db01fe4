package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/podops-dev/podops/test/world/apiserver"
)

// policy is a ValidatingAdmissionPolicy with its compiled expressions.
type policy struct {
	definition *admissionregistrationv1.ValidatingAdmissionPolicy
	scope      scope
	validator  validating.Validator
}

// compile compiles a policy as the API server does. An expression that does not compile is an error.
func compile(p *admissionregistrationv1.ValidatingAdmissionPolicy) (policy, error) {
	scope, err := newScope(p.Spec.MatchConstraints)
	if err != nil {
		return policy{}, fmt.Errorf("policy %s: %w", p.Name, err)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return policy{}, fmt.Errorf("policy %s: make a compiler: %w", p.Name, err)
	}
	declared := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	evaluator := func(expressions []cel.ExpressionAccessor, authorizer bool) cel.ConditionEvaluator {
		declared := declared
		declared.HasAuthorizer = authorizer
		compiled := compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
		err = errors.Join(err, errors.Join(compiled.CompilationErrors()...))
		return compiled
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(evaluator(conditions, true), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	validator := validating.NewValidator(evaluator(validations, true), matcher, evaluator(nil, true), evaluator(messages, false), p.Spec.FailurePolicy, nil)
	if err != nil {
		return policy{}, fmt.Errorf("policy %s: %w", p.Name, err)
	}
	return policy{definition: p, scope: scope, validator: validator}, nil
}

// decide evaluates the policies that concern a request, in order. It returns the error of the first denial.
func (c *Chain) decide(ctx context.Context, r *apiserver.Request, attributes *admission.VersionedAttributes) error {
	for _, p := range c.configuration.policies {
		if !p.scope.contains(attributes, c.labels) {
			continue
		}
		for _, binding := range c.configuration.bindings {
			if binding.Spec.PolicyName != p.definition.Name {
				continue
			}
			parameter, applies, err := c.parameter(p.definition, binding)
			if err != nil {
				return denied(attributes, p.definition.Name, binding.Name, metav1.StatusReasonInvalid, "failed to configure binding: "+err.Error())
			}
			if !applies {
				continue
			}
			result := p.validator.Validate(ctx, attributes.GetResource(), attributes, parameter, c.namespace(r.Namespace),
				celconfig.RuntimeCELCostBudget, authorizing(c.options.Authorize))
			for _, decision := range result.Decisions {
				if decision.Action != validating.ActionDeny {
					continue
				}
				if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Warn) {
					r.Warnings = append(r.Warnings, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s",
						p.definition.Name, binding.Name, decision.Message))
				}
				if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
					return denied(attributes, p.definition.Name, binding.Name, decision.Reason, decision.Message)
				}
			}
		}
	}
	return nil
}

// parameter returns the parameter of a policy, nil if it has none, and whether the binding applies.
func (c *Chain) parameter(
	p *admissionregistrationv1.ValidatingAdmissionPolicy, binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) (object runtime.Object, applies bool, err error) {
	if p.Spec.ParamKind == nil {
		return nil, true, nil
	}
	reference := binding.Spec.ParamRef
	if reference == nil {
		return nil, false, errors.New("only a policy with a paramRef is supported")
	}
	// A selector selects objects of users, here PodTransitionRules. No rule of a schedule denies updates in place.
	if reference.Selector != nil {
		return nil, false, nil
	}
	if object = c.configuration.parameter(p.Spec.ParamKind, reference.Name); object != nil {
		return object, true, nil
	}
	if action := reference.ParameterNotFoundAction; action != nil && *action == admissionregistrationv1.AllowAction {
		return nil, false, nil
	}
	return nil, false, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
}

// denied returns the error of a policy.
func denied(attributes admission.Attributes, policy, binding string, reason metav1.StatusReason, message string) error {
	message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy, binding, message)
	err := apierrors.NewForbidden(attributes.GetResource().GroupResource(), attributes.GetName(), errors.New(message))
	err.ErrStatus.Reason, err.ErrStatus.Code = reason, http.StatusUnprocessableEntity
	switch reason {
	case "":
		err.ErrStatus.Reason = metav1.StatusReasonInvalid
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Code = http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Code = http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Code = http.StatusRequestEntityTooLarge
	default: // the code from above
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

func nameFrom(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}
