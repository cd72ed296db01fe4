package podtransitionpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy/engine"
	"github.com/podops-dev/podops/pkg/policy/parameters"
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

// judge returns the judgement of the generation at hand.
func (r *Reconciler) judge(ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy) judgement {
	key := judged{uid: policy.UID, generation: policy.Generation}
	if known, ok := r.judgements.Get(key); ok {
		return known.(judgement)
	}
	found := inspect(ctx, r.inspector, policy.Spec)
	if found.err == nil {
		r.judgements.Add(key, found)
	}
	return found
}

// inspect holds the spec to what admission would: it may have been stored without it.
func inspect(ctx context.Context, inspector Inspector, spec appsv1alpha1.PodTransitionPolicySpec) judgement {
	schema, errs := parameters.Parse(spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		var found judgement
		for _, err := range errs {
			found.problems = append(found.problems, problem(engine.Problem{Code: codeSchema, Message: err.Error()}))
		}
		return found
	}
	types, err := schema.JSONSchema()
	if err != nil {
		return judgement{err: err}
	}
	_, err = inspector.Inspect(ctx, spec.Module, types)
	wrong := &engine.CompileError{}
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

func problem(found engine.Problem) appsv1alpha1.PolicyProblem {
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
