package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/prune"
)

const (
	// protobufPrefix begins each object that is encoded as protocol buffer. A runtime.Unknown follows.
	protobufPrefix = "k8s\x00"

	// frameBytes is the most that a watch event may have.
	frameBytes = 4 << 20
)

// Numbers of fields of runtime.Unknown, metav1.WatchEvent, runtime.RawExtension and corev1.Pod.
const (
	unknownRaw   = 2
	eventObject  = 2
	extensionRaw = 1
	podMetadata  = 1
	podStatus    = 3
)

// watchPods calls changed with the metadata and conditions of each version of a controlled pod. It stores no
// pod.
func watchPods(ctx context.Context, config *rest.Config, changed func(context.Context, *corev1.Pod)) error {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return fmt.Errorf("making the client of pods: %w", err)
	}
	w := &watcher{
		client: client, frame: make([]byte, frameBytes), version: "0",
		// Name, namespace, uid, resourceVersion and labels; conditions.
		kept: prune.Only().In(podMetadata, prune.Only(1, 3, 5, 6, 11)).In(podStatus, prune.Only(2)),
	}
	for ctx.Err() == nil {
		if err := w.watch(ctx, changed); err != nil {
			return err
		}
	}
	return context.Canceled
}

// watcher reads watch events.
type watcher struct {
	client rest.Interface
	kept   *prune.Message
	frame  []byte

	// version is the resourceVersion of the last event.
	version string
}

// watch reads events until the API server ends the watch, which it does when a reader is slow.
func (w *watcher) watch(ctx context.Context, changed func(context.Context, *corev1.Pod)) error {
	stream, err := w.client.Get().Resource("pods").Param("watch", "true").Param("resourceVersion", w.version).
		Param("labelSelector", appsv1alpha1.ControlLabelKey+"="+appsv1alpha1.ControlLabelValue).
		SetHeader("Accept", runtime.ContentTypeProtobuf+";stream=watch").Stream(ctx)
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	defer stream.Close()
	frames := protobuf.LengthDelimitedFramer.NewFrameReader(stream)
	for {
		size, err := frames.Read(w.frame)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading a watch event: %w", err)
		}
		pod, err := decode(w.frame[:size], w.kept)
		if err != nil {
			return fmt.Errorf("decoding a watch event: %w", err)
		}
		w.version = pod.ResourceVersion
		changed(ctx, pod)
	}
}

// decode returns the pod of a watch event, with the fields that are kept.
func decode(frame []byte, kept *prune.Message) (*corev1.Pod, error) {
	object, err := prune.Find(frame, eventObject, extensionRaw)
	if err != nil {
		return nil, err
	}
	whole, err := prune.Find(bytes.TrimPrefix(object, []byte(protobufPrefix)), unknownRaw)
	if err != nil {
		return nil, err
	}
	left, err := kept.Append(nil, whole)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, pod.Unmarshal(left)
}
