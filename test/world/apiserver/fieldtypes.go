package apiserver

import (
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// fieldTypes is the managedfields.TypeConverter of built-in kinds. The types of client-go lack those of Scale and
// CustomResourceDefinition, whose fields are deduced from the objects.
type fieldTypes struct {
	managedfields.TypeConverter
	deduced managedfields.TypeConverter
	none    bool
}

// newFieldTypes returns the converter. With none, it converts no object: an object whose fields are not known gets no
// managedFields.
func newFieldTypes(none bool) fieldTypes {
	return fieldTypes{
		TypeConverter: applyconfigurations.NewTypeConverter(scheme.Scheme),
		deduced:       managedfields.NewDeducedTypeConverter(),
		none:          none,
	}
}

var errNoFieldOwners = errors.New("this server does not record the owners of fields")

// ObjectToTyped returns an object with the types of its fields.
func (f fieldTypes) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if f.none {
		return nil, errNoFieldOwners
	}
	kind := object.GetObjectKind().GroupVersionKind()
	if kind.Kind == "Scale" || kind.Group == apiextensions.GroupName {
		return f.deduced.ObjectToTyped(object, options...)
	}
	return f.TypeConverter.ObjectToTyped(object, options...)
}
