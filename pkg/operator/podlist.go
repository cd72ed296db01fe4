package operator

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/prune"
)

// controlledPods lists and watches the controlled pods. The API server sends each version of a pod
// as a whole; little more than slimPod keeps is decoded.
func controlledPods(config *rest.Config, scheme *runtime.Scheme) (*cache.ListWatch, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.NegotiatedSerializer = pruningSerializer{
		serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}, newPodPruner(),
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of pods: %w", err)
	}
	get := func(options metav1.ListOptions) *rest.Request {
		options.LabelSelector = controlled().String()
		return client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			pods := &corev1.PodList{}
			return pods, get(options).Do(ctx).Into(pods)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return get(options).Watch(ctx)
		},
	}, nil
}

// pruningSerializer removes the fields that slimPod removes before objects are decoded: from lists of pods, and
// from pods in watch events, in protocol buffers.
type pruningSerializer struct {
	runtime.NegotiatedSerializer
	pruner podPruner
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s pruningSerializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return pruningDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, version), s.pruner}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s pruningSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if stream := types[i].StreamSerializer; types[i].MediaType == runtime.ContentTypeProtobuf && stream != nil {
			pruned := *stream
			pruned.Serializer = eventDecoder{stream.Serializer, s.pruner}
			types[i].StreamSerializer = &pruned
		}
	}
	return types
}

type pruningDecoder struct {
	runtime.Decoder
	pruner podPruner
}

// Decode implements runtime.Decoder.
func (d pruningDecoder) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if _, isList := into.(*corev1.PodList); isList {
		data = d.pruner.pruned(data)
	}
	return d.Decoder.Decode(data, kind, into)
}

// eventDecoder decodes watch events. It prunes the pod where the event was received: the events of client-go would
// copy the whole pod.
type eventDecoder struct {
	runtime.Serializer
	pruner podPruner
}

// Decode implements runtime.Decoder.
func (d eventDecoder) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, isEvent := into.(*metav1.WatchEvent)
	if !isEvent {
		return d.Serializer.Decode(data, kind, into)
	}
	object, err := prune.Find(data, eventObject, extensionRaw)
	if err != nil || !bytes.HasPrefix(object, []byte(protobufPrefix)) {
		return d.Serializer.Decode(data, kind, into)
	}
	rest, err := prune.Without(eventObject).Append(nil, data)
	if err != nil {
		return d.Serializer.Decode(data, kind, into)
	}
	decoded, actual, err := d.Serializer.Decode(rest, kind, event)
	if err != nil {
		return decoded, actual, err
	}
	event.Object.Raw = d.pruner.appendPruned(make([]byte, 0, slimBytes), object)
	return event, actual, nil
}

// podPruner removes fields of objects that are encoded as protocol buffers.
type podPruner struct {
	// byKind has the fields to keep, by kind.
	byKind map[string]*prune.Message
	header *prune.Message

	// operated has the fields to keep of objects that contain operatedLabel, by kind.
	operated map[string]*prune.Message
}

// operatedLabel is in every pod that a PodOperation may operate on: slimPod keeps more of its statuses.
const operatedLabel = appsv1alpha1.OperateLabelPrefix + "/" + appsv1alpha1.PodOperationIDPrefix

// Fields of Kubernetes' messages, by the numbers in their files generated.proto, which never change.
const (
	unknownTypeMeta = 1
	unknownRaw      = 2
	eventObject     = 2
	extensionRaw    = 1
	podListItems    = 2
	podMetadata     = 1
	podSpec         = 2
	podStatus       = 3
)

func newPodPruner() podPruner {
	return podPruner{
		header: prune.Only(unknownTypeMeta),
		// Of containerStatuses the fields of slimStatuses.
		byKind: keptFields(prune.Only(1, 4, 5, 9)),
		// Of containerStatuses the fields of operatedStatuses.
		operated: keptFields(prune.Only(1, 2, 4, 5, 6, 7, 8, 9, 11)),
	}
}

// keptFields returns the fields to keep in pods and lists of pods, by kind, with these fields in containerStatuses.
func keptFields(statuses *prune.Message) map[string]*prune.Message {
	// Names, images, ports, limits and requests, and restart policies.
	containers := prune.Only(1, 2, 6, 8, 24).In(8, prune.Only(1, 2))
	metadata := prune.Without(17) // managedFields
	pod := prune.Without().In(podMetadata, metadata).
		In(podSpec, slimSpecMessage().In(2, containers)).In(podStatus, slimStatusMessage().In(8, statuses))
	return map[string]*prune.Message{
		"Pod":     prune.Without().In(unknownRaw, pod),
		"PodList": prune.Without().In(unknownRaw, prune.Without().In(podListItems, pod)),
	}
}

func slimSpecMessage() *prune.Message {
	return prune.Without(
		1,  // volumes
		15, // imagePullSecrets
		18, // affinity
		22, // tolerations
		23, // hostAliases
		26, // dnsConfig
		32, // overhead
		33, // topologySpreadConstraints
		38, // schedulingGates
		39, // resourceClaims
		40, // resources
		44, // evictionResponders
	).
		In(20, prune.Only(1, 6, 24)).              // initContainers: their names, ports and restart policies
		In(34, prune.Only(1).In(1, prune.Only(1))) // ephemeralContainers: their names
}

func slimStatusMessage() *prune.Message {
	return prune.Without(
		10, // initContainerStatuses
		13, // ephemeralContainerStatuses
		15, // resourceClaimStatuses
		19, // allocatedResources
		20, // resources
		21, // nodeAllocatableResourceClaimStatuses
		22, // volumeHealth
	)
}

// protobufPrefix begins each object that is encoded as protocol buffer. A runtime.Unknown follows.
const protobufPrefix = "k8s\x00"

// slimBytes is the size of the buffer for a pruned object: it is enough for most pods.
const slimBytes = 4 << 10

// pruned returns the encoded object without the fields that slimPod removes. It returns other objects than pods
// and lists of pods, and data that it cannot read, unchanged.
func (p podPruner) pruned(data []byte) []byte {
	if left, ok := p.cut(make([]byte, 0, slimBytes), data); ok {
		return left
	}
	return data
}

// appendPruned appends the result of pruned, so that data may be overwritten.
func (p podPruner) appendPruned(left, data []byte) []byte {
	if cut, ok := p.cut(left, data); ok {
		return cut
	}
	return append(left, data...)
}

// cut appends a pod or a list of pods without the pruned fields; false if data is neither, or cannot be
// read.
func (p podPruner) cut(left, data []byte) ([]byte, bool) {
	encoded, found := bytes.CutPrefix(data, []byte(protobufPrefix))
	if !found {
		return nil, false
	}
	header, err := p.header.Append(nil, encoded)
	if err != nil {
		return nil, false
	}
	object := runtime.Unknown{}
	if err := object.Unmarshal(header); err != nil {
		return nil, false
	}
	byKind := p.byKind
	if bytes.Contains(encoded, []byte(operatedLabel)) {
		byKind = p.operated
	}
	kept, ok := byKind[object.Kind]
	if !ok {
		return nil, false
	}
	left, err = kept.Append(append(left, protobufPrefix...), encoded)
	return left, err == nil
}
