package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// kvstoreOperator is the folder of the manifests of the example operator.
var kvstoreOperator = filepath.Join("..", "examples", "kvstore", "config", "operator")

func TestEveryFieldOfKVStoreClusterIsBounded(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(kvstoreOperator, "crd", "kvstore.example.com_kvstoreclusters.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"spec", "status"} {
		properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part]
		if len(properties.Properties) == 0 {
			t.Errorf("no %s", part)
		}
		if found := unbounded(properties, part); len(found) > 0 {
			t.Error(strings.Join(found, "\n"))
		}
	}
}

func TestRightsOfTheKVStoreOperatorAreExact(t *testing.T) {
	for _, file := range []string{"operator_role.yaml", "operator_namespace_role.yaml"} {
		content, err := os.ReadFile(filepath.Join(kvstoreOperator, file))
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(bytes.Split(content, []byte("\n---\n"))[0], &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources), "*") {
				t.Errorf("%s: wildcard in %v", file, rule)
			}
			ownNamespace := slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "leases")
			if role.Kind == "ClusterRole" && ownNamespace {
				t.Errorf("%s: not needed: %v", file, rule)
			}
			if ownNamespace && len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) {
				t.Errorf("%s: names no object: %v", file, rule)
			}
		}
	}
}
