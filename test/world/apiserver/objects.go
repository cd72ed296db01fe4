package apiserver

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// converter converts objects between the form in which handlers have them, internal types and unstructured custom
// resources, and the types of the API.
type converter struct {
	builtIn *runtime.Scheme
	custom  *runtime.Scheme
}

func newConverter() (converter, error) {
	custom := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(custom); err != nil {
		return converter{}, fmt.Errorf("register custom resources: %w", err)
	}
	return converter{builtIn: legacyscheme.Scheme, custom: custom}, nil
}

// external returns an object as a type of a version of the API. A built-in object shares its memory with the original.
// An object of no known type is returned as it is.
func (c converter) external(object runtime.Object, version schema.GroupVersion) (runtime.Object, error) {
	switch object := object.(type) {
	case nil:
		return nil, nil
	case *unstructured.Unstructured:
		kind := object.GroupVersionKind()
		if !c.custom.Recognizes(kind) {
			return object, nil
		}
		result, err := c.custom.New(kind)
		if err != nil {
			return nil, err
		}
		return result, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, result)
	}
	if kinds, _, err := c.builtIn.ObjectKinds(object); err != nil || kinds[0].Version != runtime.APIVersionInternal {
		return object, nil //nolint:nilerr // Objects of other schemes are external.
	}
	return c.builtIn.UnsafeConvertToVersion(object, version)
}

// restore writes what external returned back to the original.
func (c converter) restore(changed, original runtime.Object) error {
	if target, ok := original.(*unstructured.Unstructured); ok {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(changed)
		target.Object = content
		return err
	}
	c.builtIn.Default(changed)
	return c.builtIn.Convert(changed, original, nil)
}

// storageVersion returns the version in which objects of a group are stored.
func (c converter) storageVersion(group string) schema.GroupVersion {
	for _, scheme := range []*runtime.Scheme{c.builtIn, extensions.Scheme} {
		if versions := scheme.PrioritizedVersionsForGroup(group); len(versions) > 0 {
			return versions[0]
		}
	}
	return schema.GroupVersion{}
}

// codec returns the codec of stored objects: that of a built-in group, or JSON for custom resources.
func (c converter) codec(group string) runtime.Codec {
	if group == apiextensionsv1.GroupName {
		return extensions.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	}
	versions := c.builtIn.PrioritizedVersionsForGroup(group)
	if len(versions) == 0 {
		return unstructured.UnstructuredJSONScheme
	}
	info, _ := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return legacyscheme.Codecs.CodecForVersions(info.Serializer, legacyscheme.Codecs.UniversalDeserializer(),
		versions[0], runtime.InternalGroupVersioner)
}
