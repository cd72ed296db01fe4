package adaptertest

import (
	"bytes"
	"os"
	"testing"
	"time"

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
		Grace:         100 * time.Millisecond,
	}
}

func good(template *Template, _ *FakeProvider) resourceconsist.ReconcileAdapter { return template }

func TestTheTemplatePasses(t *testing.T) {
	Run(t, templateConfig(good))
}

func TestTheTemplateIsShort(t *testing.T) {
	source, err := os.ReadFile("template.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(source, []byte("\n")); lines >= 150 {
		t.Errorf("template.go has %d lines; the documentation states fewer than 150", lines)
	}
}
