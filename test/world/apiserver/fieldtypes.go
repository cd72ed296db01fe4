package apiserver

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// fieldTypes is the managedfields.TypeConverter of built-in kinds. The types of client-go lack that of Scale, whose fields
// are deduced from the object.
type fieldTypes struct {
	managedfields.TypeConverter
	deduced managedfields.TypeConverter
	owned   []string
}

// newFieldTypes returns the converter for the resources whose objects have field owners. It converts no other object: an
// object whose fields are not known gets no managedFields, and to compare fields costs a lot.
func newFieldTypes(owned []string) fieldTypes {
	if len(owned) == 0 {
		return fieldTypes{}
	}
	return fieldTypes{
		TypeConverter: applyconfigurations.NewTypeConverter(scheme.Scheme),
		deduced:       managedfields.NewDeducedTypeConverter(),
		owned:         owned,
	}
}

var errNoFieldOwners = errors.New("this server does not record the owners of fields")

// ObjectToTyped returns an object with the types of its fields.
func (f fieldTypes) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	switch {
	case kind == "Scale" && len(f.owned) > 0:
		return f.deduced.ObjectToTyped(object, options...)
	case slices.Contains(f.owned, strings.ToLower(kind)+"s"):
		return f.TypeConverter.ObjectToTyped(object, options...)
	default:
		return nil, errNoFieldOwners
	}
}
