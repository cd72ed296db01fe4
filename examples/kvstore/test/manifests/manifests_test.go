// Package manifests_test compares the manifests of the operator with its code.
package manifests_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// config is the folder of the manifests.
var config = filepath.Join("..", "..", "config")

// TestTheRuleOfTheSampleSelectsItsPods compares the rule with the labels that the operator gives to pods.
func TestTheRuleOfTheSampleSelectsItsPods(t *testing.T) {
	var cluster kvstorev1.KVStoreCluster
	var rule appsv1alpha1.PodTransitionRule
	for file, into := range map[string]any{"kvstorecluster.yaml": &cluster, "podtransitionrule.yaml": &rule} {
		content, err := os.ReadFile(filepath.Join(config, "sample", file))
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
	rules := decode[appsv1alpha1.PodTransitionRule](t, documents(t, filepath.Join(config, "sample"), "podtransitionrule.yaml")["PodTransitionRule my-cluster"])
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

	service := decode[corev1.Service](t, documents(t, filepath.Join(config, "operator"), "service.yaml")["Service kvstore-operator"])
	url := "https://" + service.Name + "." + service.Namespace + ".svc" + operator.HookPath
	if rule.Webhook.ClientConfig.URL != url {
		t.Errorf("the rule calls %s, the Service is at %s", rule.Webhook.ClientConfig.URL, url)
	}
	policy := decode[networkingv1.NetworkPolicy](t, documents(t, filepath.Join(config, "operator"), "network_policy.yaml")["NetworkPolicy kvstore-operator"])
	deployment := decode[appsv1.Deployment](t, documents(t, filepath.Join(config, "operator"), "deployment.yaml")["Deployment kvstore-operator"])
	port := service.Spec.Ports[0].TargetPort
	if got := *policy.Spec.Ingress[0].Ports[0].Port; got != port {
		t.Errorf("the NetworkPolicy allows %s, the Service has %s", got.String(), port.String())
	}
	if !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal }) {
		t.Errorf("no container has the port %s", port.String())
	}

	credentials := documents(t, filepath.Join(config, "sample"), "hook.yaml")
	if name := rule.Webhook.ClientConfig.SecretRef.Name; name != operator.HookSecret || credentials["Secret "+name] == nil {
		t.Errorf("the rule has the Secret %s, the hook reads %s", name, operator.HookSecret)
	}
	role := decode[rbacv1.Role](t, credentials["Role leadership-hook"])
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{operator.HookSecret}, Verbs: []string{"get"}}}
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
