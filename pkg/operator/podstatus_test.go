package operator

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// statusServer responds to patches of the status of pods with an object, and records them.
type statusServer struct {
	*httptest.Server
	code     int
	media    string
	response runtime.Object
	requests []string
}

func newStatusServer(t *testing.T, code int, media string, response runtime.Object) *statusServer {
	t.Helper()
	s := &statusServer{code: code, media: media, response: response}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.requests = append(s.requests, r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type")+" "+string(body))
		info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), s.media)
		w.Header().Set("Content-Type", s.media)
		w.WriteHeader(s.code)
		if err := info.Serializer.Encode(s.response, w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// client returns a client of the server. Writes that reach the client beneath it fail the test.
func (s *statusServer) client(t *testing.T) podStatusClient {
	t.Helper()
	clientset, err := newClientset(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	beneath := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			t.Error("the client beneath was called")
			return nil
		},
	}).Build()
	return podStatusClient{beneath, clientset.CoreV1().RESTClient()}
}

func podMetadataNamed(name string) *metav1.PartialObjectMetadata {
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return written
}

// TestPatchOfPodStatus reads the version of the pod from a response that is a protocol buffer, and from JSON.
func TestPatchOfPodStatus(t *testing.T) {
	stored := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: "1-2", ResourceVersion: "17", Labels: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}},
		},
	}
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(media, func(t *testing.T) {
			s := newStatusServer(t, http.StatusOK, media, stored)
			written := podMetadataNamed("web-0")
			if err := s.client(t).Status().Patch(t.Context(), written, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{}}`))); err != nil {
				t.Fatal(err)
			}
			want := podMetadataNamed("web-0")
			want.UID, want.ResourceVersion = "1-2", "17"
			if diff := cmp.Diff(want, written); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			sent := []string{`PATCH /api/v1/namespaces/shop/pods/web-0/status application/strategic-merge-patch+json {"status":{}}`}
			if diff := cmp.Diff(sent, s.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPatchOfPodStatusThatFails returns the error of the API server in any encoding.
func TestPatchOfPodStatusThatFails(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "web-0", context.Canceled).Status()
	conflict.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		s := newStatusServer(t, http.StatusConflict, media, &conflict)
		err := s.client(t).Status().Patch(t.Context(), podMetadataNamed("web-0"), client.RawPatch(types.StrategicMergePatchType, []byte(`{}`)))
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "web-0") {
			t.Errorf("%s: got %v, want the conflict", media, err)
		}
	}
}

// TestOtherPatchesOfStatuses are sent by the client beneath.
func TestOtherPatchesOfStatuses(t *testing.T) {
	var patched []string
	beneath := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, resource string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			patched = append(patched, resource+" "+object.GetName())
			return nil
		},
	}).Build()
	c := podStatusClient{beneath, nil}
	other := podMetadataNamed("other")
	other.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	patch := client.RawPatch(types.MergePatchType, []byte(`{}`))
	for _, object := range []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "whole"}}, other} {
		if err := c.Status().Patch(t.Context(), object, patch); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Status().Patch(t.Context(), podMetadataNamed("dry"), patch, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"status whole", "status other", "status dry"}, patched); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}
