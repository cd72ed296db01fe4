package adaptertest

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// templateConfig returns the Config for the template, or for the adapter that spoil makes
// of it.
func templateConfig(spoil func(*Template, *FakeProvider) resourceconsist.ReconcileAdapter) Config {
	return Config{
		New: func(testing.TB) Fixture {
			provider, faults := NewFakeFaults()
			cluster := NewServiceCluster(scheme.Scheme)
			template := &Template{Client: cluster.Client, Provider: provider}
			return Fixture{Adapter: spoil(template, provider), Cluster: cluster, Provider: faults}
		},
		Ops:           everyOp(),
		FaultDeadline: 20 * time.Millisecond,
	}
}

func good(template *Template, _ *FakeProvider) resourceconsist.ReconcileAdapter { return template }

func TestTheReferencePasses(t *testing.T) {
	Run(t, templateConfig(good))
}

// TestTheTemplateIsTheReference shows that the adapter that authors copy is the adapter whose
// defects the suite is known to detect: a program cannot be imported.
func TestTheTemplateIsTheReference(t *testing.T) {
	reference, template := declarations(t, "reference_test.go"), declarations(t, filepath.Join("template", "adapter.go"))
	if diff := cmp.Diff(reference, template); diff != "" {
		t.Errorf("reference_test.go and template/adapter.go (-reference +template):\n%s", diff)
	}
	if lines := strings.Count(template, "\n"); lines >= 150 {
		t.Errorf("template/adapter.go has %d lines after its imports; the documentation states fewer than 150", lines)
	}
}

// declarations returns the source of a file after its imports, without the name of this package.
func declarations(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(source), "\n)\n")
	if !found {
		t.Fatalf("%s has no imports", file)
	}
	formatted, err := format.Source([]byte(strings.ReplaceAll(after, "adaptertest.", "")))
	if err != nil {
		t.Fatal(err)
	}
	return string(formatted)
}
