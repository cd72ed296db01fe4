package review_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// example returns a review with every field.
func example() *admissionv1.AdmissionReview {
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	pod := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5", Kind: pod, Resource: pods, SubResource: "status", RequestKind: &pod, RequestResource: &pods, RequestSubResource: "status",
			Name: "web-0", Namespace: "default", Operation: admissionv1.Update, DryRun: new(true),
			UserInfo: authenticationv1.UserInfo{
				Username: "jane", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
			},
			Object:    runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web-0","labels":{"a":"\"}{","b":"ü\u00fc\\"}},"spec":{"n":1.50,"list":[1,[],{}]}}`)},
			OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web-0"}}`)},
			Options:   runtime.RawExtension{Raw: []byte(`{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	}
}

func encode(t testing.TB, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// post sends a review to a handler.
func post(handler admission.Handler, contentType string, body io.Reader) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/", body)
	request.Header.Set("Content-Type", contentType)
	recorder := httptest.NewRecorder()
	review.New(handler).ServeHTTP(recorder, request)
	return recorder
}

func responseOf(t *testing.T, recorder *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("decoding %s: %v", recorder.Body, err)
	}
	if answer.APIVersion != "admission.k8s.io/v1" || answer.Kind != "AdmissionReview" || answer.Response == nil {
		t.Fatalf("got %s, want an AdmissionReview of v1 with a response", recorder.Body)
	}
	return answer.Response
}

// TestARequestIsDecodedAsByTheAPIMachinery compares with the decoder that is used elsewhere.
func TestARequestIsDecodedAsByTheAPIMachinery(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	indented := &bytes.Buffer{}
	if err := json.Indent(indented, encode(t, example()), "", "\t"); err != nil {
		t.Fatal(err)
	}
	created := example()
	created.Request.OldObject, created.Request.DryRun, created.Request.UserInfo.Extra = runtime.RawExtension{}, nil, nil
	unknown := bytes.Replace(encode(t, example()), []byte(`"request":{`), []byte(`"later":[{"x":{}}],"request":{"later":{"object":{}},`), 1)
	for name, body := range map[string][]byte{
		"a review with every field":          encode(t, example()),
		"a review with spaces":               append(indented.Bytes(), '\n'),
		"a review without an old object":     encode(t, created),
		"a review with fields of the future": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			want := &admissionv1.AdmissionReview{}
			if _, _, err := codecs.Decode(body, nil, want); err != nil {
				t.Fatal(err)
			}
			var got admission.Request
			recorder := post(admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
				got = request
				return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/labels/a", "b"))
			}), runtime.ContentTypeJSON, bytes.NewReader(body))
			if diff := cmp.Diff(*want.Request, got.AdmissionRequest); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			response := responseOf(t, recorder)
			if !response.Allowed || response.UID != want.Request.UID || string(response.Patch) != `[{"op":"add","path":"/metadata/labels/a","value":"b"}]` {
				t.Errorf("got %s", recorder.Body)
			}
		})
	}
}

func TestABadReviewReachesNoHandler(t *testing.T) {
	beta, none := example(), example()
	beta.APIVersion, none.Request = "admission.k8s.io/v1beta1", nil
	text := string(encode(t, example()))
	for name, tc := range map[string]struct {
		contentType, body string
		want              int32
	}{
		"another content type":    {contentType: "text/plain", body: text, want: http.StatusBadRequest},
		"an empty body":           {body: "", want: http.StatusBadRequest},
		"another version":         {body: string(encode(t, beta)), want: http.StatusBadRequest},
		"another kind":            {body: `{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}`, want: http.StatusBadRequest},
		"no request":              {body: string(encode(t, none)), want: http.StatusBadRequest},
		"a review that ends":      {body: text[:len(text)-1], want: http.StatusBadRequest},
		"an object that ends":     {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"object":{"a":[}}}`, want: http.StatusBadRequest},
		"text after the review":   {body: text + "x", want: http.StatusBadRequest},
		"too deep a nesting":      {body: `{"request":{"object":` + strings.Repeat("[", 20000), want: http.StatusBadRequest},
		"more bytes than allowed": {body: text + strings.Repeat(" ", review.MaxBytes), want: http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			contentType := tc.contentType
			if contentType == "" {
				contentType = runtime.ContentTypeJSON
			}
			recorder := post(admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
				t.Error("the handler was called")
				return admission.Allowed("")
			}), contentType, strings.NewReader(tc.body))
			if response := responseOf(t, recorder); response.Allowed || response.Result.Code != tc.want {
				t.Errorf("got %s, want a rejection with the code %d", recorder.Body, tc.want)
			}
		})
	}
}

func TestAPanicIsAnError(t *testing.T) {
	recorder := post(admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { panic("broken") }),
		runtime.ContentTypeJSON, bytes.NewReader(encode(t, example())))
	response := responseOf(t, recorder)
	if response.Allowed || response.Result.Code != http.StatusInternalServerError || response.UID != example().Request.UID {
		t.Errorf("got %s, want a rejection with the UID of the request", recorder.Body)
	}
}

// BenchmarkServeHTTP has a review of two objects of 20 KiB, as in reviews of pods.
func BenchmarkServeHTTP(b *testing.B) {
	object := []byte(`{"spec":{"containers":[{"env":[` + strings.Repeat(`{"name":"WEB_SETTING","value":"https://backend.payments.svc.cluster.local:8443/api/v1"},`, 240) + `{}]}]}}`)
	large := example()
	large.Request.Object.Raw, large.Request.OldObject.Raw = object, object
	body := encode(b, large)
	allowed := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
	for name, handler := range map[string]http.Handler{"review": review.New(allowed), "controller-runtime": &admission.Webhook{Handler: allowed}} {
		b.Run(fmt.Sprintf("%s/%dKiB", name, len(body)>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
				request.Header.Set("Content-Type", runtime.ContentTypeJSON)
				handler.ServeHTTP(httptest.NewRecorder(), request)
			}
		})
	}
}
