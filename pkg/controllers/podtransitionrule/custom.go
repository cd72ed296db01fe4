package podtransitionrule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/parameters"
)

// policies are the PodTransitionPolicies that the rules of a namespace refer to, by
// name.
type policies map[string]*appsv1alpha1.PodTransitionPolicy

// versionOf is the PodTransitionPolicy that a rule is compiled with: it changes when,
// and only when, that changes. Empty for a rule that refers to none.
func (p policies) versionOf(rule appsv1alpha1.TransitionRule) string {
	if rule.Rego == nil || rule.Rego.PolicyRef == nil {
		return ""
	}
	found, ok := p[rule.Rego.PolicyRef.Name]
	if !ok {
		return "missing"
	}
	return fmt.Sprintf("%s@%d", found.UID, found.Generation)
}

// brokenError is why a rule cannot be asked.
type brokenError struct {
	code policy.Code
	err  error
}

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// moduleOf compiles a rule to its module. For a rule of kind rego it finds and inspects
// the module of the user first. The error is a *brokenError.
func (p *programs) moduleOf(
	ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule, known policies,
) (compile.Module, error) {
	var custom *compile.Custom
	if rule.Rego != nil {
		var err error
		if custom, err = customOf(rule, known); err != nil {
			return compile.Module{}, err
		}
		inspection, err := p.engine.Inspect(ctx, custom.Source, custom.ParametersSchema)
		if err != nil {
			return compile.Module{}, &brokenError{policy.CodeCompileFailed, fmt.Errorf("rule %q: %w", rule.Name, err)}
		}
		custom.Entry = inspection.Entry
	}
	module, err := compile.Rule(object, rule, custom)
	if err != nil {
		return compile.Module{}, &brokenError{policy.CodeCompileFailed, err}
	}
	return module, nil
}

// customOf finds the module that a rule of kind rego names, and its parameters.
func customOf(rule appsv1alpha1.TransitionRule, known policies) (*compile.Custom, error) {
	path := field.NewPath("spec", "rules").Key(rule.Name).Child("rego")
	given := json.RawMessage(`{}`)
	if rule.Rego.Parameters != nil && len(rule.Rego.Parameters.Raw) > 0 {
		given = rule.Rego.Parameters.Raw
	}
	if rule.Rego.PolicyRef == nil {
		return &compile.Custom{Source: rule.Rego.Module, Parameters: given}, nil
	}
	name := rule.Rego.PolicyRef.Name
	shared, ok := known[name]
	if !ok {
		return nil, &brokenError{policy.CodePolicyNotFound, fmt.Errorf("%s: there is no PodTransitionPolicy %q", path.Child("policyRef"), name)}
	}
	schema, errs := parameters.Parse(shared.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		return nil, &brokenError{policy.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q: %w", name, errs.ToAggregate())}
	}
	completed, errs := schema.Complete(given, path.Child("parameters"))
	if len(errs) > 0 {
		return nil, &brokenError{policy.CodeInvalidParameters, errs.ToAggregate()}
	}
	types, err := schema.JSONSchema()
	if err != nil {
		return nil, &brokenError{policy.CodeCompileFailed, fmt.Errorf("PodTransitionPolicy %q: %w", name, err)}
	}
	return &compile.Custom{Source: shared.Spec.Module, ParametersSchema: types, Parameters: completed}, nil
}

// neverAllows stands in for the module of a rule that cannot be asked: whom the rule
// does not apply to, or who skips it, passes all the same.
const neverAllows = `package rule

allow := false
`

// standIn prepares the program that is asked in place of one that cannot be; nil when
// not even that is possible.
func (p *programs) standIn(ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule) program {
	if rule.Rego == nil {
		return nil
	}
	custom := &compile.Custom{Source: neverAllows, Entry: compile.EntryAllow, Parameters: json.RawMessage(`{}`)}
	module, err := compile.Rule(object, rule, custom)
	if err != nil {
		return nil
	}
	prepared, err := p.engine.Prepare(ctx, module)
	if err != nil {
		return nil
	}
	return prepared
}

// blame replaces what a stand-in said by why it stands in.
func blame(verdict policy.Verdict, code policy.Code, message string) policy.Verdict {
	if verdict.Outcome == policy.Passed && verdict.Would == "" {
		return verdict
	}
	blamed := policy.Verdict{Outcome: verdict.Outcome, Message: bounded(message, policy.MaxMessageBytes)}
	if verdict.Outcome == policy.Passed {
		blamed.Would = code
	} else {
		blamed.Outcome, blamed.Code = policy.Withheld, code
	}
	return blamed
}

// codeOf an error of preparing a rule.
func codeOf(err error) policy.Code {
	broken := &brokenError{}
	if errors.As(err, &broken) {
		return cmp.Or(broken.code, policy.CodeCompileFailed)
	}
	return policy.CodeCompileFailed
}
