package operator

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TestTheClientsetUsesProtobuf shows that events, and the watch of all pods, are not sent as JSON.
func TestTheClientsetUsesProtobuf(t *testing.T) {
	var sent, accepted []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, accepted = append(sent, r.Header.Get("Content-Type")), append(accepted, r.Header.Get("Accept"))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	clientset, err := newClientset(config)
	if err != nil {
		t.Fatal(err)
	}
	_, createErr := clientset.CoreV1().Events("default").Create(t.Context(), &corev1.Event{}, metav1.CreateOptions{})
	_, listErr := clientset.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if createErr == nil || listErr == nil || len(sent) != 2 {
		t.Fatalf("%d requests, errors %v and %v, want one of each", len(sent), createErr, listErr)
	}
	if sent[0] != runtime.ContentTypeProtobuf {
		t.Errorf("an event is sent as %s", sent[0])
	}
	for _, types := range accepted {
		if want := runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON; types != want {
			t.Errorf("accepted is %q, want %q", types, want)
		}
	}
	if config.ContentType != "" {
		t.Errorf("the configuration of others is changed to %s: not every kind has a protocol buffer", config.ContentType)
	}
}
