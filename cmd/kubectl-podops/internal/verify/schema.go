package verify

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuralcel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/config"
)

// schema is the schema of a kind, as the API server evaluates it.
type schema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *structuralcel.Validator
}

// schemas returns the schemas of PodOps kinds, by kind.
func schemas() (map[string]schema, error) {
	all := map[string]schema{}
	files, err := fs.Glob(config.Manifests, "crd/bases/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the CustomResourceDefinitions: %w", err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(config.Manifests, file)
		if err != nil {
			return nil, fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
		}
		definition := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		made, err := definitionSchema(definition)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[definition.Spec.Names.Kind] = made
	}
	return all, nil
}

func definitionSchema(definition apiextensionsv1.CustomResourceDefinition) (schema, error) {
	internal := apiextensions.JSONSchemaProps{}
	external := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, &internal, nil); err != nil {
		return schema{}, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return schema{}, err
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return schema{}, err
	}
	return schema{structural: structural, validator: validator, rules: structuralcel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// unknown returns the fields of an object that the schema does not have.
func (s schema) unknown(raw []byte) ([]string, error) {
	object := map[string]any{}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	return pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}), nil
}

// validate returns the errors of an object against the schema and its CEL rules, after pruning and defaults.
func (s schema) validate(ctx context.Context, raw []byte) (field.ErrorList, error) {
	object := map[string]any{}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	pruning.Prune(object, s.structural, true)
	defaulting.Default(object, s.structural)
	errs := validation.ValidateCustomResource(nil, object, s.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) > 0 {
		return errs, nil // CEL needs values of the right types
	}
	found, _ := s.rules.Validate(ctx, nil, s.structural, object, nil, math.MaxInt64)
	return append(errs, found...), nil
}

// nearest returns the field name that an unknown field was probably meant to be: at most a third of its letters differ. It returns
// an empty string without one that is near.
func (s schema) nearest(path string) string {
	parent, names := s.structural, strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		name, _, isItem := strings.Cut(name, "[")
		field, known := parent.Properties[name]
		if isItem && field.Items != nil {
			field = *field.Items
		}
		if !known {
			return ""
		}
		parent = &field
	}
	unknown := names[len(names)-1]
	nearest, least := "", len(unknown)/3+1
	for _, name := range slices.Sorted(maps.Keys(parent.Properties)) {
		if distance := levenshtein.ComputeDistance(strings.ToLower(unknown), strings.ToLower(name)); distance < least {
			nearest, least = name, distance
		}
	}
	return nearest
}
