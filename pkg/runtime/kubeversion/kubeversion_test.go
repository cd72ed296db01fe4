package kubeversion_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/version"

	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		server  version.Info
		problem string // the beginning of it; empty if the version is supported
		remedy  string
	}{
		"the minimum":                       {server: version.Info{Major: "1", Minor: "35", GitVersion: "v1.35.0"}},
		"a later minor":                     {server: version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1"}},
		"a minor of three digits":           {server: version.Info{Major: "1", Minor: "100", GitVersion: "v1.100.0"}},
		"a later major":                     {server: version.Info{Major: "2", Minor: "0", GitVersion: "v2.0.0"}},
		"a minor of GKE":                    {server: version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0-gke.1"}},
		"a minor with a plus":               {server: version.Info{Major: "1", Minor: "35+", GitVersion: "v1.35.2-eks-abcdef0"}},
		"k3s":                               {server: version.Info{Major: "1", Minor: "35", GitVersion: "v1.35.1+k3s1"}},
		"a prerelease of the minimum":       {server: version.Info{Major: "1", Minor: "35", GitVersion: "v1.35.0-rc.1"}},
		"a gitVersion alone":                {server: version.Info{GitVersion: "v1.35.0"}},
		"major and minor alone":             {server: version.Info{Major: "1", Minor: "35"}},
		"a development build":               {server: version.Info{Major: "1", Minor: "37", GitVersion: "v0.0.0-master+$Format:%H$"}},
		"an emulation of itself":            {server: version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", EmulationMajor: "1", EmulationMinor: "37"}},
		"an emulation of the minimum":       {server: version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", EmulationMajor: "1", EmulationMinor: "35"}},
		"compatible with the minor before":  {server: version.Info{Major: "1", Minor: "35", EmulationMajor: "1", EmulationMinor: "35", MinCompatibilityMajor: "1", MinCompatibilityMinor: "34"}},
		"the minor before the minimum":      {version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.2"}, "Kubernetes v1.34.2 is not supported. PodOps needs 1.35 or later", "Upgrade the control plane"},
		"a minor of one digit":              {version.Info{Major: "1", Minor: "9", GitVersion: "v1.9.0"}, "Kubernetes v1.9.0 is not supported", "Upgrade the control plane"},
		"an old minor of GKE":               {version.Info{Major: "1", Minor: "34+", GitVersion: "v1.34.1-gke.35"}, "Kubernetes v1.34.1-gke.35 is not supported", "Upgrade"},
		"an old gitVersion alone":           {version.Info{GitVersion: "v1.34.0"}, "Kubernetes v1.34.0 is not supported", "Upgrade"},
		"an old major and minor alone":      {version.Info{Major: "1", Minor: "34"}, "Kubernetes v1.34 is not supported", "Upgrade"},
		"an emulation below the minimum":    {version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", EmulationMajor: "1", EmulationMinor: "34"}, "Kubernetes v1.37.1 that emulates 1.34 is not supported", "without --emulated-version"},
		"an emulation that cannot be read":  {version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", EmulationMajor: "1"}, `the version of the API server cannot be read (gitVersion "v1.37.1"`, "`kubectl version`"},
		"no version":                        {version.Info{}, `the version of the API server cannot be read (gitVersion ""`, "`kubectl version`"},
		"a version that is none":            {version.Info{Major: "one", Minor: "many", GitVersion: "latest"}, `the version of the API server cannot be read (gitVersion "latest", major "one", minor "many"`, "`kubectl version`"},
		"a version that is a long document": {version.Info{GitVersion: strings.Repeat("x", 1<<20)}, `the version of the API server cannot be read (gitVersion "xxx`, "`kubectl version`"},
	} {
		t.Run(name, func(t *testing.T) {
			err := kubeversion.Check(test.server)
			if test.problem == "" {
				if err != nil {
					t.Errorf("Check: %v", err)
				}
				return
			}
			unsupported := &kubeversion.UnsupportedError{}
			if !errors.As(err, &unsupported) {
				t.Fatalf("Check: %v, want an UnsupportedError", err)
			}
			if !strings.HasPrefix(unsupported.Problem, test.problem) || !strings.Contains(unsupported.Remedy, test.remedy) {
				t.Errorf("got %q, %q", unsupported.Problem, unsupported.Remedy)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the text has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestTheRefusalNamesEverything shows the whole text: the version found, the minimum, the reason, and the way out.
func TestTheRefusalNamesEverything(t *testing.T) {
	err := kubeversion.Check(version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.2"})
	if err == nil {
		t.Fatal("1.34 is supported")
	}
	want := "Kubernetes v1.34.2 is not supported. PodOps needs 1.35 or later, since it compares resourceVersions: no older version " +
		"guarantees their order, and without it more pods could be unavailable than a rule permits. " +
		"Upgrade the control plane to 1.35 or later (docs/kubernetes-versions.md)"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

// TestTheMinimumIsTested compares the minimum with the version that make test-versions runs on.
func TestTheMinimumIsTested(t *testing.T) {
	module, err := os.ReadFile(filepath.Join("..", "..", "..", "test", "controlplane", "oldest", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\tk8s.io/kubernetes v" + kubeversion.Minimum + "."; !strings.Contains(string(module), want) {
		t.Errorf("test/controlplane/oldest/go.mod requires no Kubernetes %s", kubeversion.Minimum)
	}
}
