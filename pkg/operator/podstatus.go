package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/runtime/prune"
)

// podStatusClient is a Client that patches the status of pods as metadata with less work: it decodes of the response only
// the uid and the resourceVersion. Most of the metadata are managedFields, which no component reads.
type podStatusClient struct {
	client.Client

	// core sends requests for kinds of the core group, as protocol buffers.
	core rest.Interface
}

// Status implements client.StatusClient.
func (c podStatusClient) Status() client.SubResourceWriter {
	return podStatusWriter{c.Client.Status(), c.core}
}

type podStatusWriter struct {
	client.SubResourceWriter
	core rest.Interface
}

// acceptMetadata requests the metadata of the object that was written, as protocol buffer.
const acceptMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Patch implements client.SubResourceWriter.
func (w podStatusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	written, isMetadata := object.(*metav1.PartialObjectMetadata)
	if !isMetadata || written.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Pod") || len(options) > 0 {
		return w.SubResourceWriter.Patch(ctx, object, patch, options...)
	}
	data, err := patch.Data(object)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	result := w.core.Patch(patch.Type()).Resource("pods").Namespace(written.Namespace).Name(written.Name).SubResource("status").
		SetHeader("Accept", acceptMetadata).Body(data).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	return readVersion(body, written)
}

// Field numbers in metav1.ObjectMeta.
const (
	metadataUID             = 5
	metadataResourceVersion = 6
)

// readVersion sets the uid and the resourceVersion from the response to a write.
func readVersion(body []byte, written *metav1.PartialObjectMetadata) error {
	encoded, isProtobuf := bytes.CutPrefix(body, []byte(protobufPrefix))
	if !isProtobuf {
		object := metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(body, &object); err != nil {
			return fmt.Errorf("decoding the response: %w", err)
		}
		written.UID, written.ResourceVersion = object.UID, object.ResourceVersion
		return nil
	}
	metadata, err := prune.Find(encoded, unknownRaw, podMetadata)
	if err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	uid, err := prune.Find(metadata, metadataUID)
	if err != nil {
		return fmt.Errorf("decoding the uid in the response: %w", err)
	}
	version, err := prune.Find(metadata, metadataResourceVersion)
	if err != nil {
		return fmt.Errorf("decoding the resourceVersion in the response: %w", err)
	}
	written.UID, written.ResourceVersion = types.UID(uid), string(version)
	return nil
}
