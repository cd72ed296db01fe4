package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
)

// discoverable answers the requests of a manager to an API server before it starts.
type discoverable struct{ scheme *runtime.Scheme }

// RoundTrip implements http.RoundTripper.
func (d discoverable) RoundTrip(request *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	var answer any
	switch {
	case request.URL.Path == "/version":
		answer = version.Info{GitVersion: "v" + kubeversion.Minimum + ".0"}
	case parts[len(parts)-1] == "selfsubjectreviews":
		answer = authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "manager"}},
		}
	case request.URL.Path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIVersions"}, Versions: []string{"v1"}}
	case request.URL.Path == "/apis":
		groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
		for _, served := range d.scheme.PrioritizedVersionsAllGroups() {
			version := metav1.GroupVersionForDiscovery{GroupVersion: served.String(), Version: served.Version}
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: served.Group, Versions: []metav1.GroupVersionForDiscovery{version}})
		}
		answer = groups
	case parts[0] == "api" && len(parts) == 2:
		answer = d.resources(schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		answer = d.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	default:
		return nil, fmt.Errorf("%s %s is not served", request.Method, request.URL)
	}
	body, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}, err
}

func (d discoverable) resources(group schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: group.String()}
	for kind := range d.scheme.KnownTypes(group) {
		plural, _ := meta.UnsafeGuessKindToResource(group.WithKind(kind))
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural.Resource, Kind: kind, Namespaced: true})
	}
	return list
}

// handlers is a webhook server that serves nothing.
type handlers struct {
	webhook.Server // panics on every other method
	byPath         map[string]http.Handler
}

func (h handlers) Register(path string, handler http.Handler) { h.byPath[path] = handler }

func (h handlers) StartedChecker() healthz.Checker { return healthz.Ping }

// assembled returns the handlers of a manager without ports.
func assembled(t *testing.T) map[string]http.Handler {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	measured, err := NewMetrics(prometheus.NewRegistry(), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	collected := handlers{byPath: map[string]http.Handler{}}
	_, err = Assemble(t.Context(), &rest.Config{Host: "http://127.0.0.1:1", Transport: discoverable{scheme}}, parsed(t), Parts{
		Metrics: measured,
		Manager: ctrl.Options{
			WebhookServer: collected, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
			Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return collected.byPath
}

// TestEveryWebhookOfTheManifestsHasAHandler assembles managers without ports, two in one process.
func TestEveryWebhookOfTheManifestsHasAHandler(t *testing.T) {
	manifests := map[string]bool{}
	for _, file := range []string{"mutating.yaml", "validating.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "config", "webhook", file))
		if err != nil {
			t.Fatal(err)
		}
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		if err := yaml.Unmarshal(data, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, called := range configuration.Webhooks {
			manifests[*called.ClientConfig.Service.Path] = true
		}
	}
	for range 2 {
		registered := map[string]bool{}
		for path := range assembled(t) {
			registered[strings.TrimSuffix(path, "/")] = true // a path with a slash at its end takes a token
		}
		if diff := cmp.Diff(manifests, registered); diff != "" {
			t.Errorf("paths (-manifests +manager):\n%s", diff)
		}
	}
}
