package haproxy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/haproxytest"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
)

func cmpAddresses() cmp.Option { return cmpopts.EquateComparable(netip.AddrPort{}) }

func (w *harness) runtime() *runtimeapi.Client {
	w.t.Helper()
	endpoint, err := runtimeapi.ParseEndpoint("unix:" + w.proxy.Socket)
	if err != nil {
		w.t.Fatal(err)
	}
	return runtimeapi.New(endpoint, 0)
}

// add adds a server directly to HAProxy.
func (w *harness) add(name string) {
	w.t.Helper()
	server := runtimeapi.NewServer{Name: name, Address: netip.MustParseAddrPort("127.0.0.1:1")}
	if err := w.runtime().Add(w.t.Context(), haproxytest.Backend, server); err != nil {
		w.t.Fatal(err)
	}
}

// names returns the names of all servers in HAProxy.
func (w *harness) names() []string {
	w.t.Helper()
	servers, err := w.runtime().Servers(w.t.Context(), haproxytest.Backend)
	if err != nil {
		w.t.Fatal(err)
	}
	names := []string{}
	for name := range servers {
		names = append(names, name)
	}
	return sorted(names)
}

// server returns the server of a pod as HAProxy reports it.
func (w *harness) server(n int) runtimeapi.Server {
	w.t.Helper()
	servers, err := w.runtime().Servers(w.t.Context(), haproxytest.Backend)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, server := range servers {
		if employeeOf(name) == podName(n) {
			return server
		}
	}
	w.t.Fatalf("pod %d has no server", n)
	return runtimeapi.Server{}
}

func (w *harness) state(n int) runtimeapi.State { return w.server(n).State }

// setState changes a server directly in HAProxy.
func (w *harness) setState(n int, to runtimeapi.State) {
	w.t.Helper()
	if err := w.runtime().SetState(w.t.Context(), haproxytest.Backend, w.server(n).Name, to); err != nil {
		w.t.Fatal(err)
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

func TestTheLocationIsRecordedBeforeTheFirstServer(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.proxy.Stop(t)
	expected, err := w.adapter.GetExpectedEmployee(t.Context(), w.service())
	if err != nil || len(expected) != 1 {
		t.Fatalf("expected: %v, %v", expected, err)
	}
	if _, _, err := w.adapter.CreateEmployees(t.Context(), w.service(), expected); err == nil {
		t.Fatal("a server was added to an HAProxy that is down")
	}
	want := "unix:" + w.proxy.Socket + " " + haproxytest.Backend
	if got := w.service().Annotations[haproxy.InUseAnnotationKey]; got != want {
		t.Errorf("recorded is %q, want %q: the answer may have been lost, and the server exist", got, want)
	}
}

func TestAServiceDoesNotMoveWhileItHasServers(t *testing.T) {
	w := newHarness(t, nil)
	w.listen(0)
	w.pod(0, true)
	w.await("traffic is on", allOn(0))
	w.annotate(haproxy.BackendAnnotationKey, "other")
	_, err := w.adapter.GetExpectedEmployer(t.Context(), w.service())
	if err == nil || !strings.Contains(err.Error(), "second Service") || !strings.Contains(err.Error(), "other") {
		t.Errorf("err = %v, want one that names the new place and the way out", err)
	}
	if got := w.picture()[podName(0)]; !got.On {
		t.Errorf("the server at the old location: %+v, want it as it was", got)
	}
}

func TestInvalidAnnotationsAreNamed(t *testing.T) {
	w := newHarness(t, nil)
	for sentence, tc := range map[string]struct{ key, value, want string }{
		"no Runtime API":                       {haproxy.RuntimeAnnotationKey, "", haproxy.RuntimeAnnotationKey},
		"a Runtime API that is not an address": {haproxy.RuntimeAnnotationKey, "somewhere", haproxy.RuntimeAnnotationKey},
		"a Runtime API that is not allowed":    {haproxy.RuntimeAnnotationKey, "tcp:169.254.169.254:80", "--haproxy-allow"},
		"no backend":                           {haproxy.BackendAnnotationKey, "", haproxy.BackendAnnotationKey},
		"a backend with a command in it":       {haproxy.BackendAnnotationKey, "web;shutdown frontend web", haproxy.BackendAnnotationKey},
	} {
		old := w.service().Annotations[tc.key]
		w.annotate(tc.key, tc.value)
		_, employerErr := w.adapter.GetExpectedEmployer(t.Context(), w.service())
		_, employeeErr := w.adapter.GetExpectedEmployee(t.Context(), w.service())
		for _, err := range []error{employerErr, employeeErr} {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want an error with %q", sentence, err, tc.want)
			}
		}
		if current, err := w.adapter.GetCurrentEmployee(t.Context(), w.service()); err != nil || len(current) > 0 {
			t.Errorf("%s: current are %v, %v, want none: no server was ever added", sentence, current, err)
		}
		w.annotate(tc.key, old)
	}
}

func TestAChangedRecordDoesNotAllowARuntimeAPI(t *testing.T) {
	w := newHarness(t, nil)
	w.annotate(haproxy.InUseAnnotationKey, "tcp:169.254.169.254:80 web")
	if _, err := w.adapter.GetCurrentEmployee(t.Context(), w.service()); err == nil || !strings.Contains(err.Error(), "--haproxy-allow") {
		t.Errorf("err = %v, want that the manager may not talk to it", err)
	}
	w.annotate(haproxy.InUseAnnotationKey, "nonsense")
	if _, err := w.adapter.GetCurrentEmployee(t.Context(), w.service()); err == nil || !strings.Contains(err.Error(), haproxy.InUseAnnotationKey) {
		t.Errorf("err = %v, want one that names the annotation", err)
	}
}

func TestABackendThatIsNotConfigured(t *testing.T) {
	w := newHarness(t, map[string]string{haproxy.BackendAnnotationKey: "nope"})
	w.pod(0, true)
	if current, err := w.adapter.GetCurrentEmployee(t.Context(), w.service()); err != nil || len(current) > 0 {
		t.Errorf("current: %v, %v, want no servers", current, err)
	}
	if err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("err = %v, want one that names the backend", err)
	}
}
