package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestInspect checks that the engine calls the sandbox once for each module, and accepts only modules that are
// compiled.
func TestInspect(t *testing.T) {
	sandbox := New(Options{})
	policies, err := opa.New(opa.Options{Workers: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := policies.Inspect(t.Context(), opa.Source{Module: fine}); err != nil {
			t.Error(err)
		}
	}
	if started := sandbox.started.Load(); started != 1 {
		t.Errorf("started %d children for one module", started)
	}

	sandbox.command = misbehaving("ready, writes nothing")
	problems := problemsOf(ignoring(policies.Inspect(t.Context(), opa.Source{Module: fine + "\n"})))
	if len(problems) != 1 || problems[0].Code != CodeLimit {
		t.Errorf("got problems %+v, want one with code %s", problems, CodeLimit)
	}

	sandbox.command = func() ([]string, error) { return nil, errors.New("no binary") }
	_, err = policies.Inspect(t.Context(), opa.Source{Module: fine + "\n\n"})
	if err == nil || len(problemsOf(err)) > 0 || !strings.Contains(err.Error(), "no binary") {
		t.Errorf("got error %v, want one that rejects the module without a problem of it", err)
	}
}

func ignoring(_ opa.Inspection, err error) error { return err }
