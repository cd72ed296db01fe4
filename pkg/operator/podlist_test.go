package operator

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/podops-dev/podops/test/builders"
)

// protobufOf encodes an object as the API server does.
func protobufOf(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decodeProtobuf(t testing.TB, data []byte, into runtime.Object) {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, into); err != nil {
		t.Fatal(err)
	}
}

// TestPrunedPodsAreSlimPods shows that slimPod leaves the same of a pruned pod as of the whole pod, and only of its
// containers less than was decoded.
func TestPrunedPodsAreSlimPods(t *testing.T) {
	filled, restarted := &corev1.Pod{}, production()
	fill(reflect.ValueOf(filled).Elem(), 6)
	restarted.Status.ContainerStatuses[0].RestartCount = 3
	operated, filledOperated := production(), filled.DeepCopy()
	operated.Labels[operatedLabel+"1"], filledOperated.Labels[operatedLabel+"1"] = "1", "1"
	for name, pod := range map[string]*corev1.Pod{
		"every field": filled, "as clusters have them": production(), "restarted": restarted, "a PodOperation operates on it": operated, "every field, while a PodOperation operates on it": filledOperated,
		"almost empty": builders.MakePod("new").Obj(), "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			whole, got := &corev1.Pod{}, &corev1.Pod{}
			data := protobufOf(t, pod)
			decodeProtobuf(t, data, whole)
			decodeProtobuf(t, newPodPruner().pruned(data), got)
			want := slimmed(t, whole)
			if diff := cmp.Diff(want, slimmed(t, got)); diff != "" {
				t.Errorf("slim pods (-whole +pruned):\n%s", diff)
			}
			got.Spec.Containers, got.Status.ContainerStatuses = want.Spec.Containers, want.Status.ContainerStatuses
			got.Spec.InitContainers = want.Spec.InitContainers
			if debuggers := got.Spec.EphemeralContainers; len(debuggers) > 0 {
				got.Spec.EphemeralContainers = debuggers[len(debuggers)-1:]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("more was decoded than slimPod keeps (-slim +pruned):\n%s", diff)
			}
		})
	}
}

// TestOtherObjectsAreNotPruned, nor bytes that are no object.
func TestOtherObjectsAreNotPruned(t *testing.T) {
	for name, data := range map[string][]byte{
		"a status": protobufOf(t, &metav1.Status{Message: "gone"}), "a container of a template": protobufOf(t, &corev1.PodTemplate{
			Template: corev1.PodTemplateSpec{Spec: production().Spec},
		}),
		"JSON": []byte(`{"kind":"Pod"}`), "no bytes": nil, "the prefix alone": []byte(protobufPrefix), "bad bytes": []byte(protobufPrefix + "\xff\xff"),
		"a pod that ends": protobufOf(t, production())[:300],
	} {
		if diff := cmp.Diff(data, newPodPruner().pruned(data)); diff != "" {
			t.Errorf("%s is changed (-want +got):\n%s", name, diff)
		}
	}
}

// TestControlledPods lists from a server that sends protocol buffers, and from a server that sends JSON.
func TestControlledPods(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(media, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("labelSelector") != "kusionstack.io/control=true" {
					w.WriteHeader(http.StatusGone)
					return
				}
				info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
				w.Header().Set("Content-Type", media)
				list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*production(), *production()}}
				if err := codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(list, w); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			source, err := controlledPods(&rest.Config{Host: server.URL}, scheme)
			if err != nil {
				t.Fatal(err)
			}
			object, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list := object.(*corev1.PodList)
			if list.ResourceVersion != "7" || len(list.Items) != 2 {
				t.Fatalf("%d pods at %s, want 2 at 7", len(list.Items), list.ResourceVersion)
			}
			whole := &corev1.Pod{}
			decodeProtobuf(t, protobufOf(t, production()), whole)
			for i := range list.Items {
				list.Items[i].TypeMeta = whole.TypeMeta
				if diff := cmp.Diff(slimmed(t, whole), slimmed(t, &list.Items[i]), timesByUnix()); diff != "" {
					t.Errorf("pod %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestWatchOfControlledPods watches at a server that sends protocol buffers, and at a server that sends JSON.
func TestWatchOfControlledPods(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	operated := production()
	operated.Labels[operatedLabel+"1"] = "1"
	sent := []watch.Event{
		{Type: watch.Added, Object: production()}, {Type: watch.Modified, Object: operated}, {Type: watch.Deleted, Object: production()},
		{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}},
		{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: "too old", Code: http.StatusGone}},
	}
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(media, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", media+";stream=watch")
				if err := sendEvents(w, serializer.NewCodecFactory(scheme), media, sent); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			source, err := controlledPods(&rest.Config{Host: server.URL}, scheme)
			if err != nil {
				t.Fatal(err)
			}
			events, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			for i, want := range sent {
				got := <-events.ResultChan()
				if got.Type != want.Type {
					t.Fatalf("event %d is %s, want %s", i, got.Type, want.Type)
				}
				if status, isStatus := got.Object.(*metav1.Status); isStatus {
					if diff := cmp.Diff(want.Object.(*metav1.Status).Message, status.Message); diff != "" {
						t.Errorf("status (-want +got):\n%s", diff)
					}
					continue
				}
				pod := got.Object.(*corev1.Pod)
				if media == runtime.ContentTypeProtobuf && len(pod.Spec.Volumes)+len(pod.ManagedFields) > 0 {
					t.Errorf("event %d was decoded whole", i)
				}
				whole := &corev1.Pod{}
				decodeProtobuf(t, protobufOf(t, want.Object), whole)
				pod.TypeMeta = whole.TypeMeta
				if diff := cmp.Diff(slimmed(t, whole), slimmed(t, pod), timesByUnix()); diff != "" {
					t.Errorf("pod of event %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// sendEvents writes watch events as an API server does.
func sendEvents(w io.Writer, codecs serializer.CodecFactory, media string, events []watch.Event) error {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	frames := info.StreamSerializer.NewFrameWriter(w)
	for _, event := range events {
		version := runtime.GroupVersioner(corev1.SchemeGroupVersion)
		if _, isStatus := event.Object.(*metav1.Status); isStatus {
			version = metav1.SchemeGroupVersion
		}
		data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, version), event.Object)
		if err != nil {
			return err
		}
		frame := &bytes.Buffer{}
		sent := &metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: data}}
		if err := info.StreamSerializer.Encode(sent, frame); err != nil {
			return err
		}
		if _, err := frames.Write(frame.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// TestEventsThatAreNoEvents are refused as client-go refuses them.
func TestEventsThatAreNoEvents(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	decoder := eventDecoder{info.StreamSerializer.Serializer, newPodPruner()}
	for name, frame := range map[string][]byte{"no bytes": nil, "bad bytes": {0xff, 0xff}, "an object that ends": {0x12, 5, 0x0a, 3, 'k'}} {
		if _, _, err := decoder.Decode(frame, nil, &metav1.WatchEvent{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func timesByUnix() cmp.Option {
	return cmp.Comparer(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() })
}

// BenchmarkDecodePod decodes a watch event.
func BenchmarkDecodePod(b *testing.B) {
	pod := production()
	for i := range pod.Spec.Containers {
		for range 40 {
			pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, corev1.EnvVar{Name: "WEB_SETTING", Value: "https://backend.payments.svc.cluster.local:8443/api/v1"})
		}
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`"f:name":{},`, 500))}}
	scheme, err := newScheme()
	if err != nil {
		b.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	var frame bytes.Buffer
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	event := &metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: protobufOf(b, pod)}}
	if err := info.StreamSerializer.Encode(event, &frame); err != nil {
		b.Fatal(err)
	}
	whole := runtime.NegotiatedSerializer(serializer.WithoutConversionCodecFactory{CodecFactory: codecs})
	for name, of := range map[string]runtime.NegotiatedSerializer{"whole": whole, "pruned": pruningSerializer{whole, newPodPruner()}} {
		objects, events, _, err := runtime.NewClientNegotiator(of, corev1.SchemeGroupVersion).StreamDecoder(runtime.ContentTypeProtobuf, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var event metav1.WatchEvent
				if _, _, err := events.Decode(frame.Bytes(), nil, &event); err != nil {
					b.Fatal(err)
				}
				if _, err := runtime.Decode(objects, event.Object.Raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
