package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// metadata lists the object metadata of a kind, sorted by name. kind is the kind of the
// list.
func metadata(
	ctx context.Context, reader client.Reader, kind schema.GroupVersionKind, namespace string, options ...client.ListOption,
) ([]*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return ListAll[*metav1.PartialObjectMetadata](ctx, reader, list, append(options, client.InNamespace(namespace))...)
}
