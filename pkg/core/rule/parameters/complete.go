package parameters

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Complete returns the parameters with the defaults of the schema filled in, as canonical JSON:
// sorted keys, no spaces. given is empty for a rule without parameters. Errors have the parameter
// at fault below path ("spec.rules[0].rego.parameters"); an unknown name is an error, since a
// misspelt parameter would silently have no effect.
func (s *Schema) Complete(given stdjson.RawMessage, path *field.Path) (stdjson.RawMessage, field.ErrorList) {
	if len(given) > MaxBytes {
		return nil, field.ErrorList{field.TooLong(path, "", MaxBytes)}
	}
	var document any = map[string]any{}
	if len(given) > 0 {
		if err := json.Unmarshal(given, &document); err != nil {
			return nil, field.ErrorList{field.Invalid(path, "", fmt.Sprintf("is not JSON: %v", err))}
		}
	}
	if _, ok := document.(map[string]any); !ok {
		return nil, field.ErrorList{field.Invalid(path, "", "must be an object")}
	}
	completed, errs := s.complete(document, path)
	if len(errs) > 0 {
		return nil, first(errs, path)
	}
	encoded, err := stdjson.Marshal(completed)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, fmt.Errorf("encoding the parameters: %w", err))}
	}
	return encoded, nil
}

// complete does not change document.
func (s *Schema) complete(document any, path *field.Path) (any, field.ErrorList) {
	completed := runtime.DeepCopyJSONValue(document)
	defaults := filler{left: MaxBytes}
	if err := defaults.fill(completed, s.structural); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	if values := count(completed); values*s.nodes > maxWork {
		return nil, field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			"%d values against a schema of %d nodes take too long to validate: at most %d values fit", values, s.nodes, maxWork/s.nodes))}
	}
	if errs := s.unknown(completed, path); len(errs) > 0 {
		return nil, errs
	}
	errs := fieldErrors(s.validator.Validate(completed).Errors, path)
	if object, ok := completed.(map[string]any); ok && len(errs) == 0 {
		errs = listtype.ValidateListSetsAndMaps(path, s.structural, object)
	}
	return completed, errs
}

// unknown returns errors for names that the schema does not have.
func (s *Schema) unknown(document any, path *field.Path) field.ErrorList {
	names := pruning.PruneWithOptions(runtime.DeepCopyJSONValue(document), s.structural, false,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	// The library accepts apiVersion, kind and metadata at the root.
	if object, ok := document.(map[string]any); ok && !s.open() {
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			_, given := object[name]
			if _, known := s.structural.Properties[name]; given && !known {
				names = append(names, name)
			}
		}
	}
	var errs field.ErrorList
	for _, name := range names {
		errs = append(errs, field.Forbidden(path.Child(name), s.unknownDetail(name)))
	}
	return errs
}

// unknownDetail returns the message for an unknown name, with the existing names.
func (s *Schema) unknownDetail(name string) string {
	switch {
	case len(s.structural.Properties) == 0:
		return "the policy takes no parameters"
	case strings.ContainsAny(name, ".["):
		return "is not in the schema of the policy"
	default:
		return "the policy has no such parameter; it has " + strings.Join(sorted(s.structural.Properties), ", ")
	}
}

// open reports whether the root accepts names that the schema does not have.
func (s *Schema) open() bool {
	return s.structural.XPreserveUnknownFields || s.structural.AdditionalProperties != nil
}

// filler sets defaults. Each item of a list may have a large default, so the added bytes are
// bounded.
type filler struct{ left int }

func (f *filler) fill(document any, node *structuralschema.Structural) error {
	if node == nil {
		return nil
	}
	switch content := document.(type) {
	case map[string]any:
		for name, property := range node.Properties {
			current, found := content[name]
			if property.Default.Object == nil || (found && (current != nil || property.Nullable)) {
				continue
			}
			added, err := f.take(property.Default.Object)
			if err != nil {
				return err
			}
			content[name] = added
		}
		for name, child := range content {
			if err := f.fill(child, below(node, name)); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range content {
			if err := f.fill(child, node.Items); err != nil {
				return err
			}
		}
	}
	return nil
}

// below returns the schema for an object's member, or nil.
func below(node *structuralschema.Structural, name string) *structuralschema.Structural {
	if property, ok := node.Properties[name]; ok {
		return &property
	}
	if node.AdditionalProperties != nil {
		return node.AdditionalProperties.Structural
	}
	return nil
}

func (f *filler) take(content any) (any, error) {
	encoded, err := stdjson.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding a default: %w", err)
	}
	if f.left -= len(encoded); f.left < 0 {
		return nil, fmt.Errorf("defaults may add at most %d bytes", MaxBytes)
	}
	return runtime.DeepCopyJSONValue(content), nil
}

// count returns the number of values in a document, including itself.
func count(document any) int {
	values := 1
	switch content := document.(type) {
	case map[string]any:
		for _, child := range content {
			values += count(child)
		}
	case []any:
		for _, child := range content {
			values += count(child)
		}
	}
	return values
}

// fieldErrors converts errors of the validator, with the wording of the API server for CRDs.
func fieldErrors(found []error, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, err := range found {
		var invalid *openapierrors.Validation
		if !errors.As(err, &invalid) {
			errs = append(errs, field.Invalid(path, "", err.Error()))
			continue
		}
		at := path
		if name := strings.TrimPrefix(invalid.Name, "."); name != "" {
			at = path.Child(name)
		}
		if invalid.Code() == openapierrors.RequiredFailCode {
			errs = append(errs, field.Required(at, "the policy requires it"))
			continue
		}
		message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), invalid.Name), " in body ")
		errs = append(errs, field.Invalid(at, shown(invalid.Value), message))
	}
	return errs
}

// shown returns a value for a message, without large values.
func shown(content any) any {
	const enough = 67
	switch content := content.(type) {
	case string:
		return text.Cut(content, enough)
	case bool, int64, float64:
		return content
	default:
		return ""
	}
}
