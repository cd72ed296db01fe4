package podtransitionpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule/parameters"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// judgement is what is known of a spec. The zero value: it can be used.
type judgement struct {
	// problems that only an edit solves, all of them.
	problems []appsv1alpha1.PolicyProblem

	// err says that it is not known.
	err error
}

// codeSchema is the code of problems of the schema of parameters.
const codeSchema = "schema"

// codeTooLarge is the code of the problem of a policy that is not loaded.
const codeTooLarge = "too_large"

// judge returns the judgement of the generation at hand.
func (r *Reconciler) judge(ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy) judgement {
	if err := objectbounds.TooLarge(policy); err != nil {
		return judgement{problems: []appsv1alpha1.PolicyProblem{problem(opa.Problem{Code: codeTooLarge, Message: err.Error()})}}
	}
	if known, ok := r.judgements.Get(policy.UID); ok && known.generation == policy.Generation {
		return known.judgement
	}
	found := inspect(ctx, r.inspector, policy)
	if found.err == nil {
		r.judgements.Add(policy.Name, policy.UID, judged{generation: policy.Generation, judgement: found}, found.bytes())
	}
	return found
}

// bytes is about what a judgement takes.
func (j judgement) bytes() int64 {
	const each = 48
	bytes := 0
	for _, problem := range j.problems {
		bytes += each + len(problem.Code) + len(problem.Message)
	}
	return int64(bytes)
}

// inspect holds the spec to what admission would: it may have been stored without it.
func inspect(ctx context.Context, inspector Inspector, policy *appsv1alpha1.PodTransitionPolicy) judgement {
	content := policy.Spec
	schema, errs := parameters.Parse(content.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		var found judgement
		for _, err := range errs {
			found.problems = append(found.problems, problem(opa.Problem{Code: codeSchema, Message: err.Error()}))
		}
		return found
	}
	types, err := schema.JSONSchema()
	if err != nil {
		return judgement{err: err}
	}
	err = inspector.Precompile(ctx, opa.Source{
		Owner: spec.PolicyOwner(policy.Name), Module: content.Module, ParametersSchema: types,
	})
	wrong := &opa.CompileError{}
	switch {
	case err == nil:
		return judgement{}
	case errors.As(err, &wrong):
		var found judgement
		for _, one := range wrong.Problems {
			found.problems = append(found.problems, problem(one))
		}
		return found
	default:
		return judgement{err: fmt.Errorf("inspecting the module: %w", err)}
	}
}

// Bounds of the fields of a PolicyProblem, in bytes.
const (
	maxCode    = 63
	maxMessage = 512
)

func problem(found opa.Problem) appsv1alpha1.PolicyProblem {
	message := found.Message
	if found.File != "" { // of the library
		message = fmt.Sprintf("%s:%d:%d: %s", found.File, found.Row, found.Column, message)
		found.Row, found.Column = 0, 0
	}
	return appsv1alpha1.PolicyProblem{
		Row: int32(found.Row), Column: int32(found.Column),
		Code: cut(found.Code, maxCode), Message: cut(message, maxMessage),
	}
}

// cut bounds a text, between characters.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
