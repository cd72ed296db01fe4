package evaluation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Engine prepares rules for evaluation. NewEngine returns the engine that uses OPA.
type Engine interface {
	Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error)
	IsCompiled(module string, parametersSchema json.RawMessage) bool
	Prepare(ctx context.Context, module spec.Module) (Program, error)
}

// Program is a compiled rule. It is an *opa.Program.
type Program interface {
	// Evaluate evaluates requests that all wait in one stage.
	Evaluate(ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request) (rule.Result, error)

	// NeedsCounts reports whether the result, at least its capacity, depends on the counts, and VerdictsNeedCounts
	// whether the verdicts do.
	NeedsCounts() bool
	VerdictsNeedCounts() bool

	Needs() opa.Needs
	Source() string
}

// NewEngine returns the Engine of OPA.
func NewEngine(engine *opa.Engine) Engine { return opaEngine{engine} }

type opaEngine struct{ *opa.Engine }

// Prepare implements Engine.
func (e opaEngine) Prepare(ctx context.Context, module spec.Module) (Program, error) {
	program, err := e.Engine.Prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	return program, nil
}

// policyVersion returns the version of the PodTransitionPolicy that a rule is compiled with, and of its imports. It changes if,
// and only if, one of them changes. Empty for a rule that refers to no policy.
func policyVersion(known imports.Policies, rule appsv1alpha1.TransitionRule) string {
	if rule.Rego == nil || rule.Rego.PolicyRef == nil {
		return ""
	}
	return known.Version(rule.Rego.PolicyRef.Name)
}

// unusableRuleError is why a rule cannot be evaluated.
type unusableRuleError struct {
	code rule.Code
	err  error
}

func (e *unusableRuleError) Error() string { return e.err.Error() }

func (e *unusableRuleError) Unwrap() error { return e.err }

// Inspector inspects modules of users. It is an *opa.Engine.
type Inspector interface {
	Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error)
}

// NewModule compiles a rule of a PodTransitionRule to the module that is evaluated for it. For a rule of kind
// rego it finds and inspects the user's module first: inline, or in the PodTransitionPolicy with the given
// name. ErrorCode returns the code of its error.
func NewModule(
	ctx context.Context, engine Inspector, object types.NamespacedName, entry appsv1alpha1.TransitionRule,
	known imports.Policies,
) (spec.Module, error) {
	var custom *spec.Custom
	if entry.Rego != nil {
		var err error
		if custom, err = customModule(entry, known); err != nil {
			return spec.Module{}, err
		}
		inspection, err := engine.Inspect(ctx, opa.Source{
			Owner: moduleOwner(object, custom), Module: custom.Source, ParametersSchema: custom.ParametersSchema,
		})
		if err != nil {
			return spec.Module{}, &unusableRuleError{inspectionCode(err), fmt.Errorf("rule %q: %w", entry.Name, err)}
		}
		custom.Entry = inspection.Entry
	}
	module, err := spec.Rule(object, entry, custom)
	if err != nil {
		return spec.Module{}, &unusableRuleError{rule.CodeCompileFailed, err}
	}
	return module, nil
}

// inspectionCode returns the code for a module that could not be inspected. After an error that the module did not cause, such as a
// busy machine or a child process that was killed, it is compiled again.
func inspectionCode(err error) rule.Code {
	if errors.As(err, new(*opa.CompileError)) || errors.As(err, new(*opa.PanicError)) {
		return rule.CodeCompileFailed
	}
	return rule.CodeNotReached
}

// moduleOwner returns the owner that is charged for a module: its PodTransitionPolicy, or the namespace of
// the rule.
func moduleOwner(object types.NamespacedName, custom *spec.Custom) string {
	return spec.Module{ID: rule.RuleID{Ruleset: object}, Custom: custom}.Owner()
}

// customModule finds the module that a rule of kind rego names, and its parameters.
func customModule(entry appsv1alpha1.TransitionRule, known imports.Policies) (*spec.Custom, error) {
	path := field.NewPath("spec", "rules").Key(entry.Name).Child("rego")
	given := json.RawMessage(`{}`)
	if entry.Rego.Parameters != nil && len(entry.Rego.Parameters.Raw) > 0 {
		given = entry.Rego.Parameters.Raw
	}
	if entry.Rego.PolicyRef == nil {
		return &spec.Custom{Source: entry.Rego.Module, Parameters: given}, nil
	}
	name := entry.Rego.PolicyRef.Name
	shared, ok := known[name]
	if !ok {
		return nil, &unusableRuleError{rule.CodePolicyNotFound, fmt.Errorf("%s: there is no PodTransitionPolicy %q", path.Child("policyRef"), name)}
	}
	if err := objectbounds.TooLarge(shared); err != nil {
		return nil, &unusableRuleError{rule.CodeTooLarge, fmt.Errorf("PodTransitionPolicy %q: %w", name, err)}
	}
	schema, errs := parameters.Parse(shared.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		return nil, &unusableRuleError{rule.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q: %w", name, errs.ToAggregate())}
	}
	completed, errs := schema.Complete(given, path.Child("parameters"))
	if len(errs) > 0 {
		return nil, &unusableRuleError{rule.CodeInvalidParameters, errs.ToAggregate()}
	}
	types, err := schema.JSONSchema()
	if err != nil {
		return nil, &unusableRuleError{rule.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q: %w", name, err)}
	}
	source, err := linkedSource(shared, known)
	if err != nil {
		return nil, err
	}
	return &spec.Custom{Source: source, Policy: name, ParametersSchema: types, Parameters: completed}, nil
}

// linkedSource returns the module of a policy with what it imports.
func linkedSource(policy *appsv1alpha1.PodTransitionPolicy, known imports.Policies) (string, error) {
	if imports.IsLibrary(policy) {
		return "", &unusableRuleError{rule.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q is a library: rules refer to policies that import it", policy.Name)}
	}
	source, err := known.Source(policy)
	switch {
	case err == nil:
		return source, nil
	case errors.As(err, new(*imports.NotFoundError)):
		return "", &unusableRuleError{rule.CodePolicyNotFound, err}
	case errors.Is(err, objectbounds.ErrTooLarge):
		return "", &unusableRuleError{rule.CodeTooLarge, err}
	default:
		return "", &unusableRuleError{rule.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q: %w", policy.Name, err)}
	}
}

// neverAllows replaces the module of a rule that cannot be evaluated: pods to which the rule does not apply,
// or that skip it, pass all the same.
const neverAllows = `package rule

allow := false
`

// fallback prepares the program that replaces an unusable program; nil if that preparation fails,
// too.
func fallback(ctx context.Context, engine Engine, object types.NamespacedName, rule appsv1alpha1.TransitionRule) Program {
	if rule.Rego == nil {
		return nil
	}
	custom := &spec.Custom{Source: neverAllows, Entry: spec.EntryAllow, Parameters: json.RawMessage(`{}`)}
	module, err := spec.Rule(object, rule, custom)
	if err != nil {
		return nil
	}
	prepared, err := engine.Prepare(ctx, module)
	if err != nil {
		return nil
	}
	return prepared
}

// withReason replaces the code and message of a fallback's verdict.
func withReason(verdict rule.Verdict, code rule.Code, message string) rule.Verdict {
	if verdict.Outcome == rule.Passed && verdict.Would == "" {
		return verdict
	}
	withReasons := rule.Verdict{Outcome: verdict.Outcome, Message: text.Prefix(message, rule.MaxMessageBytes)}
	if verdict.Outcome == rule.Passed {
		withReasons.Would = code
	} else {
		withReasons.Outcome, withReasons.Code = rule.Withheld, code
	}
	return withReasons
}

// ErrorCode returns the code for an error when a rule is prepared.
func ErrorCode(err error) rule.Code {
	if errors.Is(err, objectbounds.ErrTooLarge) {
		return rule.CodeTooLarge
	}
	broken := &unusableRuleError{}
	if errors.As(err, &broken) {
		return cmp.Or(broken.code, rule.CodeCompileFailed)
	}
	return rule.CodeCompileFailed
}

// defaultedStage returns the stage of a rule that may be invalid; empty for a rule without a stage.
func defaultedStage(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionStage {
	switch stage := normalized(rule).Stage; stage {
	case appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck:
		return stage
	default:
		return ""
	}
}

// normalized returns a rule in its canonical spelling. spec.Rule returns its errors.
func normalized(rule appsv1alpha1.TransitionRule) *appsv1alpha1.TransitionRule {
	entry := rule.DeepCopy()
	_, _ = spec.Normalize(entry, nil)
	return entry
}

func defaultedEnforcement(rule appsv1alpha1.TransitionRule) appsv1alpha1.Enforcement {
	if rule.Enforcement == "" {
		return appsv1alpha1.EnforcementEnforce
	}
	return rule.Enforcement
}
