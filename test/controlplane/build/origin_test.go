package build

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/controlplane/fetch"
)

// newMirror serves shell scripts as the programs of the oldest version, which has no archive among them; each
// prints its name. missing is not there.
func newMirror(t *testing.T, missing string) (mirror *httptest.Server, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	mirror = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		name, isSum := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/dl.k8s.io/release/v1.35.0/bin/linux/"+runtime.GOARCH+"/"), ".sha256")
		script := fmt.Sprintf("#!/bin/sh\nprintf 'official %s'\n", name)
		switch {
		case name == missing || strings.Contains(name, "/"):
			http.NotFound(w, r)
		case isSum:
			fmt.Fprintf(w, "%x", sha256.Sum256([]byte(script)))
		default:
			fmt.Fprint(w, script)
		}
	}))
	t.Cleanup(mirror.Close)
	return mirror, requests
}

func originOf(t *testing.T, mode, mirror string) Origin {
	t.Helper()
	origin, err := OriginOf(func(name string) string {
		return map[string]string{"PODOPS_KUBE": mode, "PODOPS_KUBE_MIRROR": mirror}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return origin
}

// TestPrograms shows where the programs come from, by the environment and the state of the sites.
func TestPrograms(t *testing.T) {
	const gone = "http://127.0.0.1:1" // Nothing listens there.
	for name, tc := range map[string]struct {
		mode, missing string
		unreachable   bool
		want          string // what kube-scheduler prints
		output, fails string
	}{
		"reachable":                   {want: "official kube-scheduler", output: "fetching the official programs of Kubernetes v1.35.0"},
		"fetch by hand":               {mode: "fetch", want: "official kube-scheduler"},
		"build by hand":               {mode: "build", want: "oldest"},
		"unreachable":                 {unreachable: true, want: "oldest", output: "building all programs instead; PODOPS_KUBE=build does so at once"},
		"unreachable, fetch by hand":  {unreachable: true, mode: "fetch", fails: "PODOPS_KUBE=build builds it instead"},
		"one is missing":              {missing: "kube-apiserver", want: "oldest", output: "kube-apiserver.sha256 answers 404"},
		"one is missing, and by hand": {missing: "kube-apiserver", mode: "fetch", fails: "kube-apiserver.sha256 answers 404"},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, requests := newMirror(t, tc.missing)
			address := mirror.URL
			if tc.unreachable {
				address = gone
			}
			source, bin := newSource(t), t.TempDir()
			target := Oldest()
			target.links = nil // to programs of the newest version
			out, err := provide(t, target, source, bin, originOf(t, tc.mode, address))
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("want an error with %q, got %v", tc.fails, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, tc.output) {
				t.Errorf("want %q in the output:\n%s", tc.output, out)
			}
			expectPrograms(t, bin+"/oldest", map[string]string{"kube-scheduler": tc.want})

			count := requests.Load()
			if (tc.mode == modeBuild || tc.unreachable) == (count > 0) {
				t.Errorf("%d requests", count)
			}
			// They are up to date now, which no request is needed to know.
			if out, err := provide(t, target, source, bin, originOf(t, tc.mode, address)); err != nil || !strings.Contains(out, "is up to date") {
				t.Errorf("%v\n%s", err, out)
			}
			if now := requests.Load(); now != count {
				t.Errorf("%d requests for programs that are up to date", now-count)
			}
		})
	}
}

// TestByHandReplacesPrograms goes from fetched programs to built ones, and back.
func TestByHandReplacesPrograms(t *testing.T) {
	mirror, _ := newMirror(t, "")
	source, bin := newSource(t), t.TempDir()
	target := Oldest()
	target.links = nil
	for _, step := range []struct{ mode, want string }{
		{"fetch", "official kube-scheduler"}, {"build", "oldest"}, {"", "oldest"}, {"fetch", "official kube-scheduler"}, {"", "official kube-scheduler"},
	} {
		if _, err := provide(t, target, source, bin, originOf(t, step.mode, mirror.URL)); err != nil {
			t.Fatal(err)
		}
		expectPrograms(t, bin+"/oldest", map[string]string{"kube-scheduler": step.want})
	}
}

func TestOriginOf(t *testing.T) {
	for _, tc := range []struct{ mode, mirror, wrong string }{
		{"Build", "", "PODOPS_KUBE=Build: it is build, fetch or unset"},
		{"", "mirror.example", "PODOPS_KUBE_MIRROR: "},
	} {
		_, err := OriginOf(func(name string) string {
			return map[string]string{"PODOPS_KUBE": tc.mode, "PODOPS_KUBE_MIRROR": tc.mirror}[name]
		})
		if err == nil || !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	o := originOf(t, "", "")
	if o.limits.Answer != 3*time.Second || o.sites.Kubernetes.String() != fetch.Official().Kubernetes.String() {
		t.Errorf("by default: %+v", o)
	}
}
