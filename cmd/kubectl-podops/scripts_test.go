package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-podops": main})
}

// TestScripts runs the commands of testdata/script, which the documentation shows, too. In $KUBERNETES_134 they
// have the address of an API server of an unsupported version, and in $SAMPLES and $EXAMPLES
// the folders config/samples and examples.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(http.HandlerFunc(serve134))
			env.Defer(server.Close)
			env.Setenv("KUBERNETES_134", server.URL)
			root, err := filepath.Abs("../..")
			env.Setenv("SAMPLES", filepath.Join(root, "config", "samples"))
			env.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			return err
		},
	})
}

// serve134 serves the version of Kubernetes 1.34, and denies every other request.
func serve134(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/version" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"denied","reason":"Forbidden","code":403}`)
		return
	}
	fmt.Fprint(w, `{"major":"1","minor":"34","gitVersion":"v1.34.2"}`)
}
