package root_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/root"
)

// verbsOfClusters are the verbs that read a cluster.
func verbsOfClusters() map[string][]string {
	return map[string][]string{
		"explain": {"explain", "deploy/web"}, "explain -A": {"explain", "-A"}, "get": {"get", "deploy/web"},
		"get --watch": {"get", "deploy/web", "--watch"}, "timeline": {"timeline", "deploy/web"},
		"timeline --record": {"timeline", "deploy/web", "--record"}, "dashboard": {"dashboard"}, "eval": {"eval"},
		"doctor": {"doctor"}, "freeze": {"freeze", "-A", "--reason", "x"}, "thaw": {"thaw", "-A"}, "unstick": {"unstick", "pod/web-0"}, "uninstall": {"uninstall", "--yes"},
		"delete": {"delete", "pod", "web-0"}, "drain": {"drain", "node-1"}, "install": {"install", "--yes"},
	}
}

// TestVerbsEndWithoutAnAnswer shows that an API server that accepts a request and does not answer gets no second request,
// because each of them takes the time of --request-timeout.
func TestVerbsEndWithoutAnAnswer(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	for name, arguments := range verbsOfClusters() {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := silentServer(t, func() { requests.Add(1) })
			code, messages := runVerb(t.Context(), append(arguments, "--server", server.URL, "--request-timeout", "100ms")...)
			if code != command.ExitFailed || requests.Load() > 1 {
				t.Errorf("exit code %d after %d requests, want 1 after at most 1: %s", code, requests.Load(), messages)
			}
		})
	}
}

// TestVerbsEndByInterrupt shows that Ctrl-C ends a verb whose API server does not answer.
func TestVerbsEndByInterrupt(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	for name, arguments := range verbsOfClusters() {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			server := silentServer(t, interrupt)
			if code, messages := runVerb(ctx, append(arguments, "--server", server.URL)...); code != command.ExitFailed {
				t.Errorf("exit code %d, want 1: %s", code, messages)
			}
		})
	}
}

// silentServer returns a server that calls a function for each request, and answers none.
func silentServer(t *testing.T, requested func()) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server
}

func runVerb(ctx context.Context, arguments ...string) (code int, messages string) {
	var errors strings.Builder
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &strings.Builder{}, ErrOut: &errors}
	code = root.Run(ctx, arguments, streams)
	return code, errors.String()
}
