package operator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
)

// apiServer serves a version, and nothing else. It returns its requests, too.
func apiServer(t *testing.T, version string) (config *rest.Config, requests func() []string) {
	t.Helper()
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path)
		if r.URL.Path != "/version" || version == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(version)); err != nil {
			t.Error(err)
		}
	}))
	return &rest.Config{Host: server.URL}, func() []string {
		server.Close()
		return seen
	}
}

// TestAManagerDoesNotStartOnAnOldKubernetes shows that a manager reads nothing but the version of an API server
// that it does not support.
func TestAManagerDoesNotStartOnAnOldKubernetes(t *testing.T) {
	config, requests := apiServer(t, `{"major":"1","minor":"34+","gitVersion":"v1.34.2-gke.7"}`)
	_, err := Assemble(t.Context(), config, parsed(t), Parts{})
	if unsupported := (*kubeversion.UnsupportedError)(nil); !errors.As(err, &unsupported) {
		t.Errorf("Assemble: %v, want an UnsupportedError", err)
	}
	if got := requests(); !slices.Equal(got, []string{"GET /version"}) {
		t.Errorf("requests %v, want one for the version", got)
	}
}

// TestAManagerDoesNotStartWithoutAVersion shows that a manager that may not read the version does not guess it.
func TestAManagerDoesNotStartWithoutAVersion(t *testing.T) {
	config, requests := apiServer(t, "")
	if _, err := Assemble(t.Context(), config, parsed(t), Parts{}); err == nil {
		t.Error("Assemble: no error")
	}
	if got := requests(); !slices.Equal(got, []string{"GET /version"}) {
		t.Errorf("requests %v, want one for the version", got)
	}
}

// TestAManagerContinuesOnASupportedKubernetes shows that the version alone ends no start.
func TestAManagerContinuesOnASupportedKubernetes(t *testing.T) {
	config, requests := apiServer(t, `{"major":"1","minor":"35","gitVersion":"v1.35.0"}`)
	_, err := Assemble(t.Context(), config, parsed(t), Parts{})
	if unsupported := (*kubeversion.UnsupportedError)(nil); err == nil || errors.As(err, &unsupported) {
		t.Errorf("Assemble: %v, want the error of the next request", err)
	}
	if got := requests(); len(got) < 2 {
		t.Errorf("requests %v, want the next one, too", got)
	}
}
