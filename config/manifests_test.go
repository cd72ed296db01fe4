// Package config_test checks the manifests.
package config_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/podops-dev/podops/pkg/operator/certificates"
)

// webhook has the common fields of both kinds of webhooks.
type webhook = admissionregistrationv1.ValidatingWebhook

type configuration struct {
	Webhooks []webhook `json:"webhooks"`
}

// webhooks reads every webhook of a file in config/webhook.
func webhooks(t *testing.T, file string) []webhook {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("webhook", file))
	if err != nil {
		t.Fatal(err)
	}
	var c configuration
	if err := yaml.Unmarshal(content, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Webhooks) == 0 {
		t.Fatalf("%s has no webhooks", file)
	}
	return c.Webhooks
}

func allWebhooks(t *testing.T) []webhook {
	t.Helper()
	return append(webhooks(t, "mutating.yaml"), webhooks(t, "validating.yaml")...)
}

func TestWebhooksBoundWhatTheyCost(t *testing.T) {
	for _, w := range allWebhooks(t) {
		t.Run(*w.ClientConfig.Service.Path, func(t *testing.T) {
			most := int32(3)
			if path := *w.ClientConfig.Service.Path; path == "/hold-v1-pod-delete" || path == "/hold-v1-pod-eviction" {
				most = 15 // requests wait for their pod
			}
			if w.TimeoutSeconds == nil || *w.TimeoutSeconds > most {
				t.Errorf("timeoutSeconds must be at most %d, got %v", most, w.TimeoutSeconds)
			}
			if w.FailurePolicy == nil || w.SideEffects == nil || w.MatchPolicy == nil {
				t.Error("failurePolicy, sideEffects and matchPolicy must be set")
			}
			if len(w.ClientConfig.CABundle) != 0 {
				t.Error("caBundle is the manager's to write")
			}
			if len(w.MatchConditions) == 0 {
				t.Error("matchConditions must keep requests away that mean nothing to us")
			}
		})
	}
}

func TestWebhookPathsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range allWebhooks(t) {
		path := *w.ClientConfig.Service.Path
		if seen[path] {
			t.Errorf("path %s is used twice", path)
		}
		seen[path] = true
	}
}

func TestPodWebhooksLeaveTheRestAlone(t *testing.T) {
	for _, w := range allWebhooks(t) {
		for _, rule := range w.Rules {
			for _, resource := range rule.Resources {
				// A kubelet may not change labels: a mutation would have its whole status
				// update rejected. And no status waits for PodOps.
				ours := []string{
					"pods", "pods/eviction", "podtransitionrules", "podtransitionpolicies", "podoperationapprovals",
					"replicasets", "replicasets/scale", "deployments", "statefulsets", "daemonsets",
				}
				if !slices.Contains(ours, resource) {
					t.Errorf("%s: resource %s is not ours to guard by a webhook", w.Name, resource)
				}
				if resource == "pods" && (w.ObjectSelector == nil || w.ObjectSelector.MatchLabels["kusionstack.io/control"] != "true") {
					t.Errorf("%s: objectSelector must require the control label", w.Name)
				}
				if resource == "pods/eviction" && w.ObjectSelector != nil {
					t.Errorf("%s: the object is an Eviction, which has no labels of the pod", w.Name)
				}
				if strings.HasPrefix(resource, "pods") {
					checkPodScope(t, w)
				}
			}
		}
	}
}

func checkPodScope(t *testing.T, w webhook) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil || w.NamespaceSelector == nil {
		t.Fatalf("%s: namespaceSelector must exclude namespaces, got %v, %v", w.Name, w.NamespaceSelector, err)
	}
	for sentence, namespace := range map[string]struct {
		labels labels.Set
		want   bool
	}{
		"any namespace": {labels: labels.Set{"kubernetes.io/metadata.name": "shop"}, want: true},
		"kube-system":   {labels: labels.Set{"kubernetes.io/metadata.name": "kube-system"}},
		"the namespace of the manager, of any name": {
			labels: labels.Merge(managerNamespace(t).Labels, labels.Set{"kubernetes.io/metadata.name": "elsewhere"}),
		},
	} {
		if got := selector.Matches(namespace.labels); got != namespace.want {
			t.Errorf("%s: webhook is called for %s: %t, want %t", w.Name, sentence, got, namespace.want)
		}
	}
}

// managerNamespace returns the namespace of the manifests.
func managerNamespace(t *testing.T) corev1.Namespace {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("manager", "namespace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var namespace corev1.Namespace
	if err := yaml.Unmarshal(content, &namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// Mutating and validating webhooks for pods must review the same requests.
func TestMutationAndValidationOfPodsSeeTheSame(t *testing.T) {
	mutating, validating := webhooks(t, "mutating.yaml")[0], webhooks(t, "validating.yaml")[0]
	want, err := yaml.Marshal([]any{mutating.Rules, mutating.MatchConditions, mutating.ObjectSelector, mutating.NamespaceSelector})
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal([]any{validating.Rules, validating.MatchConditions, validating.ObjectSelector, validating.NamespaceSelector})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("mutating:\n%s\nvalidating:\n%s", want, got)
	}
}

// A delete or an eviction must pass when no manager answers, or nodes could not be drained, and
// PodOps could not be uninstalled. So must every change of a workload. The schema of an approval requires what its webhook sets.
func TestOnlyDeletesAndWorkloadsFailOpen(t *testing.T) {
	for _, w := range allWebhooks(t) {
		want := admissionregistrationv1.Fail
		opens := slices.Contains(w.Rules[0].Operations, admissionregistrationv1.Delete) ||
			slices.Contains(w.Rules[0].Resources, "pods/eviction") || slices.Contains(w.Rules[0].APIGroups, "apps") ||
			slices.Contains(w.Rules[0].Resources, "podoperationapprovals")
		if opens {
			want = admissionregistrationv1.Ignore
		}
		if *w.FailurePolicy != want {
			t.Errorf("%s %s: want failurePolicy %s, got %s", w.Name, *w.ClientConfig.Service.Path, want, *w.FailurePolicy)
		}
	}
}

// The component that lets deletes fail closed names the webhook of deletes, and changes
// nothing else.
func TestDeletesFailOnRequest(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("components", "deletes-fail", "patch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var patch admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(content, &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Name != "podops-validating" || len(patch.Webhooks) != 1 || *patch.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
		t.Fatalf("got %+v", patch)
	}
	for _, w := range webhooks(t, "validating.yaml") {
		if w.Name == patch.Webhooks[0].Name && *w.ClientConfig.Service.Path == "/hold-v1-pod-delete" {
			return
		}
	}
	t.Errorf("%s is not the webhook that holds deletes", patch.Webhooks[0].Name)
}

// Prometheus verifies the certificate of the manager without its namespace, which kustomize does not change inside of
// a name.
func TestServiceMonitorTrustsTheCertificate(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("components", "service-monitor", "service_monitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				TLSConfig struct {
					ServerName string                       `json:"serverName"`
					CA         map[string]map[string]string `json:"ca"`
				} `json:"tlsConfig"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &monitor); err != nil {
		t.Fatal(err)
	}
	if len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1", len(monitor.Spec.Endpoints))
	}
	tls := monitor.Spec.Endpoints[0].TLSConfig
	served := certificates.Address{Namespace: "elsewhere", Service: certificates.ServiceName}
	if !slices.Contains(served.Names(), tls.ServerName) {
		t.Errorf("serverName %s is not among the names of the certificate, %v", tls.ServerName, served.Names())
	}
	if got := tls.CA["secret"]["name"]; got != certificates.SecretName {
		t.Errorf("CA from the Secret %q, want %s", got, certificates.SecretName)
	}
}

func TestEveryComponentIsDescribed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	components, err := os.ReadDir("components")
	if err != nil || len(components) == 0 {
		t.Fatalf("got %v, %v", components, err)
	}
	for _, component := range components {
		if row := "\n| [" + component.Name() + "](../config/components/" + component.Name() + ") |"; !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/install.md has no row for the component %s", component.Name())
		}
	}
}

func TestEveryCRDIsInstalled(t *testing.T) {
	generated, err := filepath.Glob(filepath.Join("crd", "bases", "*.yaml"))
	if err != nil || len(generated) == 0 {
		t.Fatalf("got %v, %v", generated, err)
	}
	content, err := os.ReadFile(filepath.Join("crd", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		t.Fatal(err)
	}
	for _, file := range generated {
		if !slices.Contains(kustomization.Resources, "bases/"+filepath.Base(file)) {
			t.Errorf("%s is not in crd/kustomization.yaml", file)
		}
	}
}

// A manager outside the cluster gets the same reviews as one inside.
func TestLocalWebhooksAreComplete(t *testing.T) {
	for file, patch := range map[string]string{"mutating.yaml": "mutating_patch.yaml", "validating.yaml": "validating_patch.yaml"} {
		content, err := os.ReadFile(filepath.Join("local", patch))
		if err != nil {
			t.Fatal(err)
		}
		var local configuration
		if err := yaml.Unmarshal(content, &local); err != nil {
			t.Fatal(err)
		}
		want, got := map[string]string{}, map[string]string{}
		for _, w := range webhooks(t, file) {
			want[w.Name] = "https://127.0.0.1:9443" + *w.ClientConfig.Service.Path
		}
		for _, w := range local.Webhooks {
			got[w.Name] = *w.ClientConfig.URL
		}
		if !maps.Equal(want, got) {
			t.Errorf("%s: want %v, got %v", patch, want, got)
		}
	}
}

func TestManagerRightsAreExact(t *testing.T) {
	for _, file := range []string{"manager_role.yaml", "manager_namespace_role.yaml"} {
		content, err := os.ReadFile(filepath.Join("rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(bytes.Split(content, []byte("\n---\n"))[0], &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources), "*") {
				t.Errorf("%s: wildcard in %v", file, rule)
			}
			for _, resource := range rule.Resources {
				unnamed := len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"})
				if unnamed && (resource == "secrets" || resource == "leases" || strings.HasSuffix(resource, "webhookconfigurations")) {
					t.Errorf("%s: %s must be granted by name", file, resource)
				}
			}
		}
	}
}

// TestAggregatedRolesHaveNoRules shows that a second `kubectl apply` has no conflict: the controller that
// aggregates ClusterRoles owns their rules.
func TestAggregatedRolesHaveNoRules(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("rbac", "owner_reader_role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(content, []byte("\n---\n"))
	var role map[string]any
	if err := yaml.Unmarshal(first, &role); err != nil {
		t.Fatal(err)
	}
	if _, has := role["rules"]; has || role["aggregationRule"] == nil {
		t.Errorf("ClusterRole %v, want an aggregationRule and no rules", role)
	}
}
