package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Admission must accept the samples, without a warning.
func TestSampleOfWebhooksIsValid(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("samples", "webhook", "podtransitionrule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	object := appsv1alpha1.PodTransitionRule{}
	if err := yaml.UnmarshalStrict(content, &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Spec.Rules) == 0 {
		t.Fatal("the sample has no rules")
	}
	for _, rule := range object.Spec.Rules {
		if _, err := spec.Rule(types.NamespacedName{Name: object.Name}, rule, nil); err != nil {
			t.Error(err)
		}
		if warnings := spec.Warnings(rule, field.NewPath(rule.Name)); len(warnings) > 0 {
			t.Errorf("warnings: %v", warnings)
		}
	}
}

// Secrets of users are read by name and never cached; and only with the component webhook-secrets.
func TestSecretsAreOnlyRead(t *testing.T) {
	for _, file := range []string{"components/webhook-secrets/role.yaml", "samples/webhook/secret.yaml"} {
		content, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			role := rbacv1.ClusterRole{}
			if err := yaml.Unmarshal(document, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				found = true
				if !slices.Equal(rule.Verbs, []string{"get"}) || !slices.Equal(rule.Resources, []string{"secrets"}) {
					t.Errorf("%s: more than get of secrets: %v", file, rule)
				}
			}
		}
		if !found {
			t.Errorf("%s has no role", file)
		}
	}
	content, err := os.ReadFile(filepath.Join("default", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("components")) {
		t.Error("config/default reads secrets of users")
	}
}
