package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/apis/kvstore/v1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/kvstore"
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

// documents decodes the documents of a file in the folder into objects by kind and name.
func documents(t *testing.T, folder, file string) map[string]map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		object := map[string]any{}
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name, _, _ := unstructured.NestedString(object, "metadata", "name")
		found[fmt.Sprint(object["kind"], " ", name)] = object
	}
	return found
}

// decode converts an object to its type.
func decode[T any](t *testing.T, object map[string]any) (into T) {
	t.Helper()
	if object == nil {
		t.Fatalf("no %T", into)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &into); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestTheSampleReachesTheHook follows the rule of the sample to the port of the operator and to the token.
func TestTheSampleReachesTheHook(t *testing.T) {
	rules := decode[appsv1alpha1.PodTransitionRule](t, documents(t, filepath.Join("samples", "kvstore"), "podtransitionrule.yaml")["PodTransitionRule my-cluster"])
	i := slices.IndexFunc(rules.Spec.Rules, func(rule appsv1alpha1.TransitionRule) bool { return rule.Webhook != nil })
	if i < 0 {
		t.Fatal("the sample has no hook")
	}
	rule := rules.Spec.Rules[i]
	if _, err := spec.Rule(types.NamespacedName{Name: rules.Name}, rule, nil); err != nil {
		t.Error(err)
	}
	if warnings := spec.Warnings(rule, field.NewPath(rule.Name)); len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if rules.Labels[kvstorev1.NameLabelKey] != kvstorev1.NameLabelValue {
		t.Error("the operator does not read a rule without its label")
	}

	service := decode[corev1.Service](t, documents(t, "kvstore-operator", "service.yaml")["Service kvstore-operator"])
	url := "https://" + service.Name + "." + service.Namespace + ".svc" + kvstore.HookPath
	if rule.Webhook.ClientConfig.URL != url {
		t.Errorf("the rule calls %s, the Service is at %s", rule.Webhook.ClientConfig.URL, url)
	}
	policy := decode[networkingv1.NetworkPolicy](t, documents(t, "kvstore-operator", "network_policy.yaml")["NetworkPolicy kvstore-operator"])
	deployment := decode[appsv1.Deployment](t, documents(t, "kvstore-operator", "deployment.yaml")["Deployment kvstore-operator"])
	port := service.Spec.Ports[0].TargetPort
	if got := *policy.Spec.Ingress[0].Ports[0].Port; got != port {
		t.Errorf("the NetworkPolicy allows %s, the Service has %s", got.String(), port.String())
	}
	if !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal }) {
		t.Errorf("no container has the port %s", port.String())
	}

	credentials := documents(t, filepath.Join("samples", "kvstore"), "hook.yaml")
	if name := rule.Webhook.ClientConfig.SecretRef.Name; name != kvstore.HookSecret || credentials["Secret "+name] == nil {
		t.Errorf("the rule has the Secret %s, the hook reads %s", name, kvstore.HookSecret)
	}
	role := decode[rbacv1.Role](t, credentials["Role leadership-hook"])
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{kvstore.HookSecret}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("the rights on the Secret (-want +got):\n%s", diff)
	}
	binding := decode[rbacv1.RoleBinding](t, credentials["RoleBinding leadership-hook"])
	var subjects []string
	for _, subject := range binding.Subjects {
		subjects = append(subjects, subject.Namespace+"/"+subject.Name)
	}
	if diff := cmp.Diff([]string{"podops-system/podops-controller-manager", "kvstore-system/kvstore-operator"}, subjects); diff != "" {
		t.Errorf("who has them (-want +got):\n%s", diff)
	}
}
