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

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/apis/kvstore/v1"
	"github.com/podops-dev/podops/pkg/kvstore/plan"
)

func TestEveryFieldOfKVStoreClusterIsBounded(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("kvstore-operator", "crd", "kvstore.example.com_kvstoreclusters.yaml"))
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
		content, err := os.ReadFile(filepath.Join("kvstore-operator", file))
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
			if slices.Contains(rule.Resources, "secrets") || role.Kind == "ClusterRole" && slices.Contains(rule.Resources, "leases") {
				t.Errorf("%s: not needed: %v", file, rule)
			}
		}
	}
}

// TestTheRuleOfTheSampleSelectsItsPods compares the rule with the labels that the operator gives to pods.
func TestTheRuleOfTheSampleSelectsItsPods(t *testing.T) {
	var cluster kvstorev1.KVStoreCluster
	var rule appsv1alpha1.PodTransitionRule
	for file, into := range map[string]any{"kvstorecluster.yaml": &cluster, "podtransitionrule.yaml": &rule} {
		content, err := os.ReadFile(filepath.Join("samples", "kvstore", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	labels := plan.MemberLabels(cluster.Name)
	for key, value := range rule.Spec.Selector.MatchLabels {
		if labels[key] != value {
			t.Errorf("the rule selects %s=%s, pods have %q", key, value, labels[key])
		}
	}
	var parameters struct {
		Key   string `json:"leader_key"`
		Value string `json:"leader_value"`
	}
	if err := yaml.Unmarshal(rule.Spec.Rules[1].Rego.Parameters.Raw, &parameters); err != nil {
		t.Fatal(err)
	}
	if parameters.Key != kvstorev1.RoleLabelKey || parameters.Value != kvstorev1.RoleLeader {
		t.Errorf("the rule has another label of the leader than the operator: %+v", parameters)
	}
}
