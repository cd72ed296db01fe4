package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/core/rule/lint"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/absence"
	"github.com/podops-dev/podops/pkg/operator/admission"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/observation"
)

// verification is the check of one object.
type verification struct {
	schema   schema
	engine   *opa.Engine
	reviewer *admission.Reviewer
	objects  *objects
	document manifests.Document

	// inputs are what modules are evaluated for when the pods in the files are to be deleted.
	inputs   []observation.Input
	findings []finding
}

// run returns the findings, in the order in which admission would come to them.
func (v *verification) run(ctx context.Context) ([]finding, error) {
	unknown, err := v.schema.unknown(v.document.JSON)
	if err != nil {
		return nil, err
	}
	for _, path := range unknown {
		message := fmt.Sprintf("unknown field %q", path)
		if name := v.schema.nearest(path); name != "" {
			message += fmt.Sprintf(", did you mean %q?", name)
		}
		v.add("unknown-field", path, message)
	}
	raw := v.document.JSON
	if v.document.Kind.Kind == "PodTransitionRule" {
		normalized, answer, err := v.reviewer.Normalize(ctx, raw)
		if err != nil {
			return nil, err
		}
		v.addAnswer(answer)
		raw = normalized
	}
	if len(v.findings) > len(unknown) {
		return v.findings, nil
	}
	errs, err := v.schema.validate(ctx, raw)
	if err != nil {
		return nil, err
	}
	for _, err := range errs {
		v.add(findingID(err.Field, "schema"), err.Field, err.ErrorBody())
	}
	if len(errs) > 0 {
		return v.findings, nil
	}
	return v.findings, v.review(ctx, raw)
}

// review adds the findings of the webhooks, and findings about objects that pass them.
func (v *verification) review(ctx context.Context, raw []byte) error {
	switch v.document.Kind.Kind {
	case "PodTransitionRule":
		v.addAnswer(v.reviewer.Rule(ctx, raw))
		object := &appsv1alpha1.PodTransitionRule{}
		if err := json.Unmarshal(raw, object); err != nil {
			return err
		}
		for _, found := range append(lint.Rule(object), lint.Order(object, v.objects.statefulSets(object))...) {
			v.add(found.ID, found.Field, found.Message)
		}
		for i, entry := range object.Spec.Rules {
			if entry.Rego != nil && entry.Rego.Module != "" {
				if err := v.module(ctx, fmt.Sprintf("spec.rules[%d].rego.module", i), rulesModule(entry.Rego)); err != nil {
					return err
				}
			}
		}
	case "PodTransitionPolicy":
		v.addAnswer(v.reviewer.Policy(ctx, raw))
		object := &appsv1alpha1.PodTransitionPolicy{}
		if err := json.Unmarshal(raw, object); err != nil {
			return err
		}
		if custom, ok := policyModule(object, v.objects.policies); ok {
			return v.module(ctx, "spec.module", custom)
		}
	}
	return nil
}

// rulesModule returns the module of a rule.
func rulesModule(rego *appsv1alpha1.RegoRule) spec.Custom {
	custom := spec.Custom{Source: rego.Module}
	if rego.Parameters != nil {
		custom.Parameters = rego.Parameters.Raw
	}
	return custom
}

// policyModule returns the module of a policy and what it imports, with an example of its parameters, if its schema and its imports
// are valid.
func policyModule(object *appsv1alpha1.PodTransitionPolicy, known imports.Policies) (custom spec.Custom, ok bool) {
	source, err := known.Source(object)
	if err != nil {
		return custom, false // the webhooks have reported it
	}
	custom = spec.Custom{Source: source, Policy: object.Name}
	schema, errs := parameters.Parse(object.Spec.Parameters, field.NewPath("spec", "parameters"))
	if len(errs) > 0 {
		return custom, false // the webhooks have reported it
	}
	if custom.Parameters, err = schema.Example(); err != nil {
		return custom, false
	}
	custom.ParametersSchema, err = schema.JSONSchema()
	return custom, err == nil
}

// moduleHints returns the mistakes that can be seen in a module; none in parameters that the webhooks have reported as
// wrong.
func moduleHints(inspected opa.Inspection, custom spec.Custom) []opa.Problem {
	if custom.Policy != "" { // the schema of a policy has its parameters
		return inspected.Hints
	}
	about, err := inspected.ParameterHints(custom.Parameters)
	if err != nil {
		return nil
	}
	return slices.Concat(inspected.Hints, about)
}

// module adds probable mistakes of a module that compiles.
func (v *verification) module(ctx context.Context, at string, custom spec.Custom) error {
	inspected, err := v.engine.Inspect(ctx, opa.Source{Module: custom.Source, ParametersSchema: custom.ParametersSchema})
	if errors.As(err, new(*opa.CompileError)) {
		return nil // the webhooks have reported it
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	for _, problem := range moduleHints(inspected, custom) {
		v.addProblem(problem.Code, at, problem)
	}
	limited, end := context.WithTimeout(ctx, absence.Timeout)
	absent, err := absence.Find(limited, v.engine, custom)
	end()
	if err != nil {
		return fmt.Errorf("%s: removing facts: %w", at, err)
	}
	for _, found := range absent.Findings {
		v.addAbsent(at, found)
	}
	isCut := absent.IsCut
	for _, group := range observation.ByModule(v.inputs) {
		given := *group[0].Module.Custom
		if given.Source != custom.Source || given.Policy != custom.Policy {
			continue
		}
		limited, end := context.WithTimeout(ctx, absence.Timeout)
		absent, err := absence.FindIn(limited, v.engine, given, observation.Documents(group))
		end()
		if err != nil {
			return fmt.Errorf("%s: removing facts of pods: %w", at, err)
		}
		isCut = isCut || absent.IsCut
		for _, found := range absent.Findings {
			found.With = append(found.With, "pod "+group[found.Input].Pod)
			v.addAbsent(at, found)
		}
	}
	if isCut {
		v.add("absent-facts-cut", at, "not all facts were removed: the module reads too many, or takes too long")
	}
	return nil
}

// addAbsent adds a fact without which a pod passes, unless it is known.
func (v *verification) addAbsent(at string, found absence.Finding) {
	id := found.ID()
	for _, known := range v.findings {
		if known.ID == id && known.Field == at && strings.Contains(known.Message, found.Fact+", as with") {
			return
		}
	}
	v.addProblem(id, at, opa.Problem{File: found.Place.File, Row: found.Place.Row, Column: found.Place.Column, Message: found.String()})
}

// addAnswer adds the findings of the webhooks.
func (v *verification) addAnswer(answer admission.Answer) {
	for _, cause := range answer.Causes {
		v.add(findingID(cause.Field, "invalid-field"), cause.Field, cause.Message)
	}
	if answer.Denied != "" {
		v.add("invalid-field", "", answer.Denied)
	}
	for _, problem := range answer.Problems {
		v.addProblem(idOfProblem(problem.Problem), problem.Field, problem.Problem)
	}
	for _, warning := range answer.Warnings {
		field, message, found := strings.Cut(warning, ": ")
		if !found || strings.Contains(field, " ") {
			field, message = "", warning
		}
		id := "admission-warning"
		switch {
		case strings.HasSuffix(field, "policyRef.name"), field == "spec.imports":
			id = "policy-not-found"
		case strings.Contains(field, ".conditions["), strings.HasSuffix(field, ".availablePolicy"),
			strings.HasSuffix(field, "rego.parameters"), strings.HasSuffix(field, ".module"):
			continue // lint and hints report it
		}
		v.add(id, field, message)
	}
}

// findingID returns the id for a denied field.
func findingID(field, otherwise string) string {
	switch {
	case field == "spec.selector":
		return "empty-selector"
	case strings.HasSuffix(field, "AvailableValue"), strings.HasSuffix(field, "UnavailableValue"):
		return "invalid-bound"
	case strings.Contains(field, ".rego.parameters"):
		return "invalid-parameters"
	default:
		return otherwise
	}
}

// idOfProblem returns the id for a module's problem.
func idOfProblem(problem opa.Problem) string {
	switch message := problem.Message; {
	case strings.Contains(message, "undefined function"):
		return "builtin-not-available"
	case strings.Contains(message, "undefined ref: input.parameters"):
		return "undefined-parameter"
	case strings.Contains(message, "undefined ref: input"):
		return "undefined-input"
	case strings.Contains(message, "entry point"), strings.HasPrefix(message, "allow must be"), strings.HasPrefix(message, "deny must be"),
		strings.Contains(message, "both allow and deny"):
		return "entry-point"
	case problem.Code == "rego_parse_error":
		return "rego-syntax"
	case problem.Code == "rego_type_error":
		return "rego-type"
	default:
		return "rego-compile"
	}
}

// add adds a finding at a field.
func (v *verification) add(id, field, message string) {
	known, ok := catalogue()[id]
	if !ok {
		known = catalogue()["invalid-field"]
	}
	v.findings = append(v.findings, finding{
		ID: id, Level: known.Level, File: v.document.File, Line: v.document.LineAt(field), Field: field, Message: message, Fix: known.Fix,
		Object: v.document.Kind.Kind + "/" + cmp.Or(v.document.Object.GetName(), "(no name)"),
	})
}

// addProblem adds a finding in a module, at its row and column in the file: the text of a block begins in the
// line after its field.
func (v *verification) addProblem(id, field string, problem opa.Problem) {
	v.add(id, field, problem.Message)
	at := &v.findings[len(v.findings)-1]
	switch {
	case problem.File != "":
		at.Message = fmt.Sprintf("%s (%s, row %d, column %d)", at.Message, problem.File, problem.Row, problem.Column)
	case problem.Row > 0:
		if offset, block := v.document.BlockAt(field); block {
			at.Line, at.Column = at.Line+problem.Row, problem.Column+offset
		}
		at.Message = fmt.Sprintf("%s (row %d, column %d of the module)", at.Message, problem.Row, problem.Column)
	}
}
