package podtransitionpolicy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// inspection is the result of checking a spec. The zero value means that it can be used.
type inspection struct {
	// problems are all errors that require an edit.
	problems []appsv1alpha1.PolicyProblem

	// err means that the result is unknown.
	err error
}

// codeSchema is the code for problems in the schema of parameters.
const codeSchema = "schema"

// Codes of problems: imports or data that cannot be used, and an import that does not exist.
const (
	codeImports  = "imports"
	codeNotFound = "import_not_found"
)

// codeTooLarge is the code for a policy that is not loaded.
const codeTooLarge = "too_large"

// inspected returns the inspection of the present version.
func (r *Reconciler) inspected(ctx context.Context, policy *appsv1alpha1.PodTransitionPolicy, all imports.Policies) inspection {
	version := all.Version(policy.Name)
	if err := objectbounds.TooLarge(policy); err != nil {
		return inspection{problems: []appsv1alpha1.PolicyProblem{problem(opa.Problem{Code: codeTooLarge, Message: err.Error()})}}
	}
	if known, ok := r.inspections.Get(policy.UID); ok && known.version == version {
		return known.inspection
	}
	found := inspect(ctx, r.inspector, policy, all)
	if found.err == nil {
		r.inspections.Add(policy.Name, policy.UID, inspected{version: version, inspection: found}, found.bytes()+int64(len(version)))
	}
	return found
}

// bytes returns the approximate size of an inspection.
func (j inspection) bytes() int64 {
	const each = 48
	bytes := 0
	for _, problem := range j.problems {
		bytes += each + len(problem.Code) + len(problem.Message)
	}
	return int64(bytes)
}

// inspect applies the checks of admission to a spec that may have been stored without it.
func inspect(ctx context.Context, inspector Inspector, policy *appsv1alpha1.PodTransitionPolicy, all imports.Policies) inspection {
	content := policy.Spec
	schema, errs := parameters.Parse(content.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		var found inspection
		for _, err := range errs {
			found.problems = append(found.problems, problem(opa.Problem{Code: codeSchema, Message: err.Error()}))
		}
		return found
	}
	types, err := schema.JSONSchema()
	if err != nil {
		return inspection{err: err}
	}
	source, err := all.Source(policy)
	if err != nil {
		code := codeImports
		if errors.As(err, new(*imports.NotFoundError)) {
			code = codeNotFound
		}
		return inspection{problems: []appsv1alpha1.PolicyProblem{problem(opa.Problem{Code: code, Message: err.Error()})}}
	}
	_, err = inspector.Inspect(ctx, opa.Source{
		Owner: spec.PolicyOwner(policy.Name), Module: source, ParametersSchema: types,
	})
	wrong := &opa.CompileError{}
	switch {
	case err == nil:
		return inspection{}
	case errors.As(err, &wrong):
		var found inspection
		for _, one := range wrong.Problems {
			found.problems = append(found.problems, problem(one))
		}
		return found
	default:
		return inspection{err: fmt.Errorf("inspecting the module: %w", err)}
	}
}

// Bounds of a PolicyProblem's fields, in bytes.
const (
	maxCode    = 63
	maxMessage = 512
)

func problem(found opa.Problem) appsv1alpha1.PolicyProblem {
	message := found.Message
	if found.File != "" { // of a library
		message = fmt.Sprintf("%s:%d:%d: %s", found.File, found.Row, found.Column, message)
		found.Row, found.Column = 0, 0
	}
	return appsv1alpha1.PolicyProblem{
		Row: int32(found.Row), Column: int32(found.Column),
		Code: text.Prefix(found.Code, maxCode), Message: text.Cut(message, maxMessage),
	}
}
