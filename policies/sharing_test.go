package policies_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// sharing has policies that import each other, and their modules with tests.
const sharing = "../examples/sharing"

// sharedPolicies returns the policies of the folder sharing.
func sharedPolicies(t *testing.T) imports.Policies {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sharing, "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	known := imports.Policies{}
	for _, document := range bytes.Split(content, []byte("\n---\n")) {
		policy := &appsv1alpha1.PodTransitionPolicy{}
		if bytes.Contains(document, []byte("kind: PodTransitionPolicy\n")) {
			if err := yaml.UnmarshalStrict(append(document, '\n'), policy); err != nil {
				t.Fatal(err)
			}
			known[policy.Name] = policy
		}
	}
	return known
}

func TestSharedPoliciesHoldTheModules(t *testing.T) {
	compared := 0
	for name, policy := range sharedPolicies(t) {
		if policy.Spec.Module == "" {
			continue
		}
		source, err := os.ReadFile(filepath.Join(sharing, strings.ReplaceAll(name, "-", "_")+".rego"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(source), policy.Spec.Module); diff != "" {
			t.Errorf("policy %s (-module +manifest):\n%s", name, diff)
		}
		compared++
	}
	if compared != 2 {
		t.Errorf("%d policies have a module, want 2", compared)
	}
}

// TestSharedPoliciesAreAccepted checks each of them as admission does.
func TestSharedPoliciesAreAccepted(t *testing.T) {
	known := sharedPolicies(t)
	subject, err := opa.New(opa.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, policy := range known {
		source, err := known.Source(policy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := subject.Inspect(t.Context(), opa.Source{Module: source}); err != nil {
			t.Errorf("%s is rejected: %v", name, err)
		}
	}
}
