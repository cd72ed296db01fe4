package doctor_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/builders"
)

const (
	system    = "podops-system"
	shop      = "default"
	finalizer = "prot.podopslifecycle.kusionstack.io/lb"
)

var now = builders.Epoch.Add(time.Hour)

// authority returns a certificate for the webhooks, and the CA that signed it, in PEM.
func authority(t *testing.T, notAfter time.Time) (certificate, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"podops-webhook." + system + ".svc"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return encoded, encoded
}

// installation returns a webhook, a policy and a CRD.
func installation(ca []byte) doctor.Installation {
	client := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: system, Name: "podops-webhook"}, CABundle: ca,
	}
	return doctor.Installation{
		Mutating: []admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "podops-mutating"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "pods", ClientConfig: client, FailurePolicy: new(admissionregistrationv1.Fail)}},
		}},
		Validating: []admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "podops-validating"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "pods", ClientConfig: client, FailurePolicy: new(admissionregistrationv1.Fail)}},
		}},
		Policies: []admissionregistrationv1.ValidatingAdmissionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "podops-pod-status"}}},
		Bindings: []admissionregistrationv1.ValidatingAdmissionPolicyBinding{{ObjectMeta: metav1.ObjectMeta{Name: "podops-pod-status"}}},
		CRDs: []apiextensionsv1.CustomResourceDefinition{{
			ObjectMeta: metav1.ObjectMeta{Name: "podtransitionrules.apps.kusionstack.io"},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true}}},
		}},
	}
}

// healthy returns a cluster without a misconfiguration: a manager, a workload with a Service, its rule and budget.
func healthy(t *testing.T) *doctor.Snapshot {
	t.Helper()
	certificate, ca := authority(t, now.Add(80*24*time.Hour))
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	return &doctor.Snapshot{
		Expected: installation(nil), Installed: installation(ca),
		Kubernetes: version.Info{Major: "1", Minor: kubeversion.Minimum[2:], GitVersion: "v" + kubeversion.Minimum + ".0"}, Unread: map[doctor.Source]string{},
		Manager: doctor.Manager{
			Namespace:  system,
			Deployment: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: appsv1.DeploymentStatus{AvailableReplicas: 2}},
			Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("manager-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(-2 * time.Second)},
			}},
			Service:        &corev1.Service{},
			EndpointSlices: []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}}}},
			Certificate:    &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: certificate}},
		},
		Namespaces: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: shop}},
			{ObjectMeta: metav1.ObjectMeta{Name: system, Labels: map[string]string{appsv1alpha1.ControlLabelKey: "false"}}},
		},
		Pods:     []corev1.Pod{*pod("web-0").Obj(), *pod("web-1").Obj(), *pod("web-2").Obj()},
		Services: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"}}},
		Deployments: []appsv1.Deployment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
			Spec: appsv1.DeploymentSpec{Selector: app, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: "true"},
			}}},
		}},
		Budgets: []policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: app, MaxUnavailable: new(intstr.FromInt32(1))},
		}},
		Rules:    []appsv1alpha1.PodTransitionRule{*rule("web", appsv1alpha1.TransitionRule{Name: "approved", LabelCheck: &appsv1alpha1.LabelCheck{Requires: requires("approved", "yes")}})},
		Adapters: []appsv1alpha1.TrafficAdapter{*adapter(metav1.ConditionTrue)},
	}
}

func pod(name string) *builders.PodBuilder {
	return builders.MakePod(name).Namespace(shop).Label("app", "web").Available().OwnedBy(metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: new(true),
	})
}

func requires(key string, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

func rule(name string, rules ...appsv1alpha1.TransitionRule) *appsv1alpha1.PodTransitionRule {
	return &appsv1alpha1.PodTransitionRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name},
		Spec:       appsv1alpha1.PodTransitionRuleSpec{Selector: requires("app", "web"), Rules: rules},
	}
}

func adapter(status metav1.ConditionStatus) *appsv1alpha1.TrafficAdapter {
	return &appsv1alpha1.TrafficAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: "slb"},
		Status: appsv1alpha1.TrafficAdapterStatus{Conditions: []metav1.Condition{
			{Type: appsv1alpha1.ConditionRunning, Status: status, Reason: "x"}, {Type: appsv1alpha1.ConditionReady, Status: status, Reason: "x"},
		}},
	}
}

func calling(url, secret string) appsv1alpha1.TransitionRule {
	r := appsv1alpha1.TransitionRule{Name: "call", Webhook: &appsv1alpha1.TransitionRuleWebhook{ClientConfig: appsv1alpha1.WebhookClientConfig{URL: url}}}
	if secret != "" {
		r.Webhook.ClientConfig.SecretRef = &appsv1alpha1.SecretReference{Name: secret}
	}
	return r
}

// fault is a misconfiguration that is added to a healthy cluster, and the finding of it.
type fault struct {
	id     doctor.ID
	seed   func(*testing.T, *doctor.Snapshot)
	object string
	text   string // part of it
}

func withRule(r *appsv1alpha1.PodTransitionRule) func(*testing.T, *doctor.Snapshot) {
	return func(_ *testing.T, s *doctor.Snapshot) { s.Rules = append(s.Rules, *r) }
}

func withPod(b *builders.PodBuilder) func(*testing.T, *doctor.Snapshot) {
	return func(_ *testing.T, s *doctor.Snapshot) { s.Pods[0] = *b.Obj() }
}

func condition(r *appsv1alpha1.PodTransitionRule, kind string, status metav1.ConditionStatus, reason, message string) *appsv1alpha1.PodTransitionRule {
	r.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: message}}
	return r
}

func installationFaults() map[string]fault {
	return map[string]fault{
		"Kubernetes is too old": {"kubernetes-version", func(_ *testing.T, s *doctor.Snapshot) {
			s.Kubernetes = version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.2"}
		}, "kube-apiserver", "Kubernetes v1.34.2 is not supported"},
		"a webhook was removed": {"webhook-missing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Validating[0].Webhooks = nil
		}, "validatingwebhookconfiguration podops-validating", "has no webhook pods"},
		"a configuration was removed": {"webhook-missing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Mutating = nil
		}, "mutatingwebhookconfiguration podops-mutating", "has no webhook pods"},
		"a failurePolicy was edited": {"webhook-edited", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Mutating[0].Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		}, "mutatingwebhookconfiguration podops-mutating", "failurePolicy"},
		"a policy was removed": {"admission-policy-missing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Policies = nil
		}, "validatingadmissionpolicy podops-pod-status", "does not exist"},
		"a binding was removed": {"admission-policy-missing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Bindings = nil
		}, "validatingadmissionpolicybinding podops-pod-status", "does not exist"},
		"a binding only audits": {"admission-policy-edited", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Bindings[0].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		}, "validatingadmissionpolicybinding podops-pod-status", "validationActions"},
		"a CRD was removed": {"crd-missing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.CRDs = nil
		}, "crd podtransitionrules.apps.kusionstack.io", "does not exist"},
		"a CRD is of another version": {"crd-outdated", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.CRDs[0].Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{}
		}, "crd podtransitionrules.apps.kusionstack.io", "another version"},
		"another CA signed the certificate": {"webhook-ca", func(t *testing.T, s *doctor.Snapshot) {
			_, other := authority(t, now.Add(time.Hour))
			s.Installed.Validating[0].Webhooks[0].ClientConfig.CABundle = other
		}, "validatingwebhookconfiguration podops-validating", "does not verify the certificate"},
		"a caBundle is empty": {"webhook-ca", func(_ *testing.T, s *doctor.Snapshot) {
			s.Installed.Validating[0].Webhooks[0].ClientConfig.CABundle = nil
		}, "validatingwebhookconfiguration podops-validating", "caBundle is empty"},
		"the Secret is gone": {"webhook-ca", func(_ *testing.T, s *doctor.Snapshot) {
			s.Manager.Certificate = nil
		}, "secret podops-system/podops-webhook-certs", "has no certificate"},
		"the certificate was not renewed": {"certificate-expiring", func(t *testing.T, s *doctor.Snapshot) {
			certificate, ca := authority(t, now.Add(24*time.Hour))
			s.Installed, s.Manager.Certificate.Data[corev1.TLSCertKey] = installation(ca), certificate
		}, "secret podops-system/podops-webhook-certs", "should have renewed it"},
		"no endpoint is ready": {"webhook-no-endpoints", func(_ *testing.T, s *doctor.Snapshot) {
			s.Manager.EndpointSlices[0].Endpoints[0].Conditions.Ready = new(false)
		}, "service podops-system/podops-webhook", "no ready endpoint"},
		"the webhooks do not answer": {"webhook-no-answer", func(_ *testing.T, s *doctor.Snapshot) {
			s.Manager.Refusal = "failed calling webhook"
		}, "validatingwebhookconfiguration podops-validating", "failed calling webhook"},
		"the lease expired": {"manager-no-leader", func(_ *testing.T, s *doctor.Snapshot) {
			s.Manager.Lease.Spec.RenewTime.Time = now.Add(-time.Hour)
		}, "lease podops-system/podops-controller-manager", "60m ago"},
		"a replica is missing": {"manager-unavailable", func(_ *testing.T, s *doctor.Snapshot) {
			s.Manager.Deployment.Status.AvailableReplicas = 1
		}, "deployment podops-system/podops-controller-manager", "1 of 2 replicas"},
		"the namespace lost its label": {"manager-namespace", func(_ *testing.T, s *doctor.Snapshot) {
			s.Namespaces[1].Labels = nil
		}, "namespace podops-system", "has no label"},
		"the glass was not repaired": {"break-glass", func(_ *testing.T, s *doctor.Snapshot) {
			s.Namespaces[0].Annotations = map[string]string{appsv1alpha1.BreakGlassAnnotationKey: "INC-1, jane"}
		}, "namespace default", "INC-1, jane"},
		"that of a pod neither": {"break-glass", withPod(pod("web-0").Annotation(appsv1alpha1.BreakGlassAnnotationKey, "INC-2")), "pod default/web-0", "INC-2"},
	}
}

func guardFaults() map[string]fault {
	reviews := func(resource string, operation admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{operation},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	webhook := func(rules []admissionregistrationv1.RuleWithOperations) func(*testing.T, *doctor.Snapshot) {
		return func(_ *testing.T, s *doctor.Snapshot) {
			s.Guards.Validating = []admissionregistrationv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "guard.example.com", Rules: rules}},
			}}
		}
	}
	const configuration = "validatingwebhookconfiguration guard"
	return map[string]fault{
		"a webhook reviews deletes":   {"removal-guarded", webhook(reviews("pods", admissionregistrationv1.Delete)), configuration, "guard.example.com reviews deletes of pods beside"},
		"a webhook reviews evictions": {"removal-guarded", webhook(reviews("pods/eviction", "CREATE")), configuration, "reviews evictions beside"},
		"a webhook reviews scales":    {"removal-guarded", webhook(reviews("*/scale", "UPDATE")), configuration, "reviews scales of ReplicaSets beside"},
		"a webhook reviews all":       {"removal-guarded", webhook(reviews("*/*", "*")), configuration, "reviews deletes of pods, evictions, scales of ReplicaSets beside"},
		"a policy reviews deletes": {"removal-guarded", func(_ *testing.T, s *doctor.Snapshot) {
			s.Guards.Policies, s.Guards.Bindings = guardPolicy(admissionregistrationv1.Deny, reviews("pods", admissionregistrationv1.Delete)[0])
		}, "validatingadmissionpolicy guard", "the policy reviews deletes of pods beside"},
	}
}

func guardPolicy(
	action admissionregistrationv1.ValidationAction, rule admissionregistrationv1.RuleWithOperations,
) ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	policy := admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
	}
	binding := admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionregistrationv1.ValidationAction{action}
	return []admissionregistrationv1.ValidatingAdmissionPolicy{policy}, []admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding}
}

// TestOtherWebhooksAreNoFinding shows that reviews of other requests, and policies that deny nothing, are not named.
func TestOtherWebhooksAreNoFinding(t *testing.T) {
	snapshot := healthy(t)
	other := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "pods/status", "deployments/scale", "replicasets"}},
	}
	snapshot.Guards.Mutating = []admissionregistrationv1.MutatingWebhookConfiguration{{
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "sidecars.example.com", Rules: []admissionregistrationv1.RuleWithOperations{other}}},
	}}
	other.Operations, other.Resources = []admissionregistrationv1.OperationType{"DELETE"}, []string{"pods"}
	snapshot.Guards.Policies, snapshot.Guards.Bindings = guardPolicy(admissionregistrationv1.Audit, other)
	if findings := doctor.Inspect(*snapshot, doctor.Options{}, now).Findings; len(findings) > 0 {
		t.Errorf("findings %+v", findings)
	}
}

func ruleFaults() map[string]fault {
	twenty := rule("held", calling("https://approvals.example", ""))
	twenty.Spec.MaxHold = &metav1.Duration{Duration: 20 * time.Minute}
	failing := rule("failing", calling("https://approvals.example", ""))
	failing.Status.RuleStates = []appsv1alpha1.RuleState{{Name: "call", WebhookStatus: &appsv1alpha1.WebhookStatus{TaskStates: []appsv1alpha1.TaskInfo{
		{Phase: appsv1alpha1.TaskFailed, Attempts: 4, Reason: "Timeout", Message: "no answer"},
	}}}}
	elsewhere := rule("elsewhere", calling("https://approvals.example", ""))
	elsewhere.Spec.Selector = requires("app", "wbe")
	excluded := rule("excluded", calling("https://approvals.example", ""))
	excluded.Namespace = system
	labelled := func(selector *metav1.LabelSelector) appsv1alpha1.TransitionRule {
		return appsv1alpha1.TransitionRule{Name: "labels", LabelCheck: &appsv1alpha1.LabelCheck{Requires: selector}}
	}
	never := requires("approved", "yes")
	never.MatchLabels = map[string]string{"approved": "no"}
	available := func(policy appsv1alpha1.AvailablePolicy) *appsv1alpha1.PodTransitionRule {
		return rule("available", appsv1alpha1.TransitionRule{Name: "availability", AvailablePolicy: &policy})
	}
	return map[string]fault{
		"all pods must stay available": {"rule-never-passes", withRule(available(appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromInt32(3))})), "podtransitionrule default/available", "minAvailable 3 with 3 pods"},
		"100 % of them must":           {"rule-never-passes", withRule(available(appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromString("100%"))})), "podtransitionrule default/available", "minAvailable 100% with 3 pods: an available pod is permitted only while there are more pods than desired"},
		"and no rollout surges": {"rule-never-passes", func(t *testing.T, s *doctor.Snapshot) {
			withRule(available(appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromString("100%"))}))(t, s)
			s.Deployments[0].Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0))}
		}, "podtransitionrule default/available", "no available pod ever passes it"},
		"surge of a Deployment without maxSurge": {"surge-without-effect", func(t *testing.T, s *doctor.Snapshot) {
			withRule(available(appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromInt32(1)), Surge: new(intstr.FromInt32(1))}))(t, s)
			s.Deployments[0].Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0))}
		}, "podtransitionrule default/available", "surge of rule availability starts no pod of Deployment web (maxSurge is 0, or the strategy Recreate): the pods that it withholds wait"},
		"surge of a StatefulSet": {"surge-without-effect", func(t *testing.T, s *doctor.Snapshot) {
			withRule(available(appsv1alpha1.AvailablePolicy{MinAvailableValue: new(intstr.FromInt32(1)), Surge: new(intstr.FromInt32(1))}))(t, s)
			set := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
			set.Spec.Template.Labels = s.Deployments[0].Spec.Template.Labels
			s.StatefulSets = append(s.StatefulSets, set)
		}, "podtransitionrule default/available", "starts no pod of StatefulSet db (only Deployments start pods)"},
		"no pod may be unavailable": {"rule-never-passes", withRule(available(appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(0))})), "podtransitionrule default/available", "maxUnavailable 0"},
		"the manager reports it":    {"rule-never-passes", withRule(condition(rule("r"), appsv1alpha1.ConditionStalled, metav1.ConditionTrue, appsv1alpha1.ReasonNeverPasses, "rule x permits no pod")), "podtransitionrule default/r", "rule x permits no pod"},
		"a count is written for a percentage": {
			"rule-limits-nothing", withRule(available(appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(25))})),
			"podtransitionrule default/available", `permits all of 3 pods at once: maxUnavailableValue is 25; a percentage is written "25%"`,
		},
		"a rule requires what it excludes":       {"rule-never-passes", withRule(rule("r", labelled(never))), "podtransitionrule default/r", "requires values of the label approved that exclude each other"},
		"a rule requires what it does not match": {"rule-never-passes", withRule(rule("r", labelled(requires("app", "shop")))), "podtransitionrule default/r", "label app"},
		"a rule does not compile":                {"rule-not-evaluated", withRule(condition(rule("r"), appsv1alpha1.ConditionReady, metav1.ConditionFalse, appsv1alpha1.ReasonCompileFailed, "1:1: x")), "podtransitionrule default/r", "CompileFailed"},
		"a rule is under quarantine":             {"rule-quarantined", withRule(quarantinedRule()), "podtransitionrule default/slow", "too expensive"},
		"a selector has a typing error":          {"rule-selects-nothing", withRule(elsewhere), "podtransitionrule default/elsewhere", "matches no pod under PodOps"},
		"two rules exclude each other":           {"rules-exclude", withRule(rule("other", labelled(requires("approved", "no")))), "podtransitionrule default/web", "exclude each other"},
		"a rule is out of PodOps":                {"rule-in-excluded-namespace", withRule(excluded), "podtransitionrule podops-system/excluded", "out of PodOps"},
		"a policy does not exist": {"policy-missing", withRule(rule("r", appsv1alpha1.TransitionRule{Name: "shared", Rego: &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: "window"}}})),
			"podtransitionrule default/r", "podtransitionpolicy window"},
		"a policy does not compile": {"policy-not-compiling", func(_ *testing.T, s *doctor.Snapshot) {
			s.Shared = []appsv1alpha1.PodTransitionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "window"}, Status: appsv1alpha1.PodTransitionPolicyStatus{
				Conditions: []metav1.Condition{{Type: appsv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: appsv1alpha1.ReasonCompileFailed}},
			}}}
		}, "podtransitionpolicy window", "CompileFailed"},
		"a Secret does not exist": {"webhook-rule-secret", withRule(rule("r", calling("https://approvals.example", "token"))), "podtransitionrule default/r", "secret token"},
		"a Secret has other keys": {"webhook-rule-secret", func(t *testing.T, s *doctor.Snapshot) {
			withRule(rule("r", calling("https://approvals.example", "token")))(t, s)
			s.RuleSecrets = []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "token"}, Data: map[string][]byte{"password": {1}}}}
		}, "podtransitionrule default/r", "neither token nor"},
		"a Service does not exist":       {"webhook-rule-service", withRule(rule("r", calling("https://approvals.default.svc:8443/x", ""))), "podtransitionrule default/r", "service default/approvals"},
		"a service fails":                {"webhook-rule-failing", withRule(failing), "podtransitionrule default/failing", "4 calls"},
		"maxHold is beyond the deadline": {"max-hold-deadline", withRule(twenty), "podtransitionrule default/held", "deployment web (10m0s)"},
		"a budget permits no disruption": {"pdb-permits-nothing", func(_ *testing.T, s *doctor.Snapshot) { s.Budgets[0].Spec.MaxUnavailable = new(intstr.FromInt32(0)) }, "pdb default/web", "selects 3 pods"},
		"nor would a rollout that does not surge": {"pdb-permits-nothing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Budgets[0].Spec.MaxUnavailable, s.Deployments[0].Spec.Strategy.Type = new(intstr.FromInt32(0)), appsv1.RecreateDeploymentStrategyType
		}, "pdb default/web", "no available one is ever permitted"},
		"a budget requires all of the pods": {"pdb-permits-nothing", func(_ *testing.T, s *doctor.Snapshot) {
			s.Budgets[0].Spec.MaxUnavailable, s.Budgets[0].Spec.MinAvailable = nil, new(intstr.FromInt32(3))
			s.Budgets[0].Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, DesiredHealthy: 3}
		}, "pdb default/web", "minAvailable 3 with 3 pods"},
		"two budgets select a pod": {"pdb-several", func(_ *testing.T, s *doctor.Snapshot) {
			s.Budgets = append(s.Budgets, *s.Budgets[0].DeepCopy())
			s.Budgets[1].Name = "web-2"
		}, "pod default/web-0", "web, web-2"},
	}
}

func nodeFaults() map[string]fault {
	holding := func(seed func(*corev1.Node)) func(*testing.T, *doctor.Snapshot) {
		return func(_ *testing.T, s *doctor.Snapshot) {
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
			seed(&node)
			since := now.Add(-6 * time.Minute)
			held := pod("web-0").Node("node-1").Waiting(appsv1alpha1.PodDeleteID, "delete", since)
			record := deferreddelete.Request{User: "karpenter"}.Begin(held.Obj(), deferreddelete.Begun(held.Obj()))
			s.Nodes = []corev1.Node{node, {ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Spec: corev1.NodeSpec{Unschedulable: true}}}
			s.Pods[0] = *held.Annotation(appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(record)).Obj()
		}
	}
	taint := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	const first = " and has waited for 6m for pods whose rules withhold their removal: 1, the first is default/web-0, as karpenter requests"
	return map[string]fault{
		"a cordoned node waits": {"node-waits", holding(func(node *corev1.Node) { node.Spec.Unschedulable = true }), "node node-1", "is cordoned," + first},
		"a node that is deleted waits": {"node-waits", holding(func(node *corev1.Node) {
			node.DeletionTimestamp = &metav1.Time{Time: now}
		}), "node node-1", "is being deleted," + first},
		"a node of Karpenter waits":      {"node-waits", holding(taint("karpenter.sh/disrupted")), "node node-1", "has the taint karpenter.sh/disrupted," + first},
		"a node of the autoscaler waits": {"node-waits", holding(taint("ToBeDeletedByClusterAutoscaler")), "node node-1", "has the taint ToBeDeletedByClusterAutoscaler," + first},
	}
}

// TestNodesThatWaitForNothingAreNoFinding shows that a pod may be held on a node that takes pods, and for a while on any.
func TestNodesThatWaitForNothingAreNoFinding(t *testing.T) {
	snapshot := healthy(t)
	waiting := func(name, node string, since time.Time) corev1.Pod {
		return *pod(name).Node(node).Waiting(appsv1alpha1.PodDeleteID, "delete", since).Obj()
	}
	snapshot.Nodes = []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "open"}}, {ObjectMeta: metav1.ObjectMeta{Name: "cordoned"}, Spec: corev1.NodeSpec{Unschedulable: true}},
	}
	snapshot.Pods[0], snapshot.Pods[1] = waiting("web-0", "open", now.Add(-10*time.Minute)), waiting("web-1", "cordoned", now.Add(-4*time.Minute))
	for _, finding := range doctor.Inspect(*snapshot, doctor.Options{}, now).Findings {
		if finding.Check == "node-waits" {
			t.Errorf("finding %+v", finding)
		}
	}
}

// TestTheRemedyForAMissingGate labels a template that lacks the label: a pod that is only deleted would have neither label nor gate.
func TestTheRemedyForAMissingGate(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string // of the template
		want   string
	}{
		"the template has the label": {map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: "true"}, "kubectl delete pod -n default web-0"},
		"the template has no label":  {map[string]string{"app": "web"}, `kubectl patch deployment -n default web -p '{"spec":{"template":{"metadata":{"labels":{"kusionstack.io/control":"true"}}}}}'`},
	} {
		snapshot := healthy(t)
		snapshot.Deployments[0].Spec.Template.Labels, snapshot.Pods[0] = test.labels, *pod("web-0").Gateless().Obj()
		remedy := ""
		for _, finding := range doctor.Inspect(*snapshot, doctor.Options{}, now).Findings {
			if finding.Check == "gate-missing" {
				remedy = finding.Remedy
			}
		}
		if !strings.HasPrefix(remedy, test.want) {
			t.Errorf("%s: the remedy is %q, want %q", name, remedy, test.want)
		}
	}
}

func podFaults() map[string]fault {
	const id = "upgrade"
	ago := now.Add(-45 * time.Minute)
	old := func(b *builders.PodBuilder, prefix string) *builders.PodBuilder {
		return b.Label(prefix+"/"+id, builders.Stamp(ago))
	}
	return map[string]fault{
		"a pod has no gate": {"gate-missing", withPod(pod("web-0").Gateless()), "pod default/web-0", "readiness gate"},
		"a label is not in the template": {"control-label-not-in-template", func(_ *testing.T, s *doctor.Snapshot) {
			s.Deployments[0].Labels = map[string]string{appsv1alpha1.ControlLabelKey: "true"}
			s.Deployments[0].Spec.Template.Labels = map[string]string{"app": "web"}
		}, "deployment default/web", "not in its pod template"},
		"the label of a template is no true": {"control-label-value", func(_ *testing.T, s *doctor.Snapshot) {
			s.Deployments[0].Spec.Template.Labels[appsv1alpha1.ControlLabelKey] = "True"
		}, "deployment default/web", `only "true"`},
		"the label of a bare pod is no true": {"control-label-value", func(_ *testing.T, s *doctor.Snapshot) {
			s.Pods = append(s.Pods, *builders.MakePod("bare").Namespace(shop).Label(appsv1alpha1.ControlLabelKey, "yes").Obj())
		}, "pod default/bare", `only "true"`},
		"an operation has no type":   {"lifecycle-invalid", withPod(pod("web-0").Label(appsv1alpha1.OperatingLabelPrefix+"/"+id, builders.Stamp(now))), "pod default/web-0", id},
		"a kubelet does not follow":  {"kubelet-not-syncing", withPod(pod("web-0").Condition(appsv1alpha1.ServiceReadyGate, false, appsv1alpha1.ReasonKubeletNotSyncing, now)), "pod default/web-0", "kubelet"},
		"a PodOperation is gone":     {"operation-without-controller", withPod(pod("web-0").Waiting("podoperation-1", "restart", now)), "pod default/web-0", "podoperation-1"},
		"a pod waits for long":       {"rule-waits-long", withPod(old(pod("web-0").Waiting(id, "update", ago), appsv1alpha1.PreCheckLabelPrefix)), "pod default/web-0", "45m"},
		"an operation runs for long": {"operation-runs-long", withPod(old(pod("web-0").Allowed(id, "update"), appsv1alpha1.OperateLabelPrefix)), "pod default/web-0", "for 45m"},
		"a pod stays offline":        {"stays-offline-long", withPod(pod("web-0").StayOffline().Condition(appsv1alpha1.ServiceReadyGate, false, "", ago)), "pod default/web-0", "stay-offline"},
		"an adapter has stopped":     {"adapter-not-running", func(_ *testing.T, s *doctor.Snapshot) { s.Adapters[0] = *adapter(metav1.ConditionFalse) }, "trafficadapter slb", "does not run"},
		"an adapter is not used":     {"adapter-not-used", func(_ *testing.T, s *doctor.Snapshot) { s.Adapters[0] = *adapter(metav1.ConditionFalse) }, "trafficadapter slb", "not used"},
		"a controller is gone":       {"finalizer-orphaned", withPod(pod("web-0").Finalizer(finalizer)), "pod default/web-0", finalizer},
		"an adapter is retired": {"finalizer-orphaned", func(t *testing.T, s *doctor.Snapshot) {
			withPod(pod("web-0").Finalizer(resourceconsist.GenerateLifecycleFinalizer("retired")).Terminating(now.Add(-time.Hour)))(t, s)
			s.Services = append(s.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "retired"}})
		}, "pod default/web-0", "has the finalizer of no adapter"},
		"a load balancer checks nodes": {"service-not-confirmed", withService(corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		}), "service default/slow", "its load balancer checks nodes at an interval of its own (externalTrafficPolicy: Local), and no adapter confirms that the traffic of 3 pods is off"},
		"a load balancer without an adapter": {"service-not-confirmed", withService(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}), "service default/slow", "may have pods as targets"},
		"clients that resolve a name":        {"service-not-confirmed", withService(corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}), "service default/slow", "headless"},
		"a Service waits for its adapter": {"service-not-cleaned", func(_ *testing.T, s *doctor.Snapshot) {
			ended := metav1.NewTime(now.Add(-time.Hour))
			s.Services = append(s.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{
				Namespace: shop, Name: "gone", DeletionTimestamp: &ended, Finalizers: []string{"example.com/other", resourceconsist.CleanFinalizer("gone")},
			}})
		}, "service default/gone", "has been terminating for 60m"},
		"a Service is gone": {"finalizer-orphaned", withPod(pod("web-0").Finalizer(finalizer).Expect("Service/default/gone", finalizer)), "pod default/web-0", finalizer},
		"traffic does not go off": {"traffic-off-long", withPod(old(old(pod("web-0").Preparing(id, "update").Finalizer(finalizer), appsv1alpha1.PrepareLabelPrefix), appsv1alpha1.PreparingLabelPrefix)),
			"pod default/web-0", "45m"},
		"traffic does not come on": {"traffic-on-long", withPod(builders.MakePod("web-0").Namespace(shop).Label("app", "web").Expect("Service/default/web", finalizer).ReadySince(ago).Condition(appsv1alpha1.ServiceReadyGate, true, "", ago)), "pod default/web-0", "traffic is on"},
	}
}

func TestAHealthyClusterHasNoFinding(t *testing.T) {
	report := doctor.Inspect(*healthy(t), doctor.Options{}, now)
	if diff := cmp.Diff(doctor.Report{Checks: len(doctor.IDs()), Findings: []doctor.Finding{}}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestEachFaultIsFound(t *testing.T) {
	found := map[doctor.ID]bool{}
	for _, faults := range []map[string]fault{installationFaults(), guardFaults(), ruleFaults(), podFaults(), nodeFaults()} {
		for sentence, f := range faults {
			found[f.id] = true
			t.Run(sentence, func(t *testing.T) {
				snapshot := healthy(t)
				f.seed(t, snapshot)
				report := doctor.Inspect(*snapshot, doctor.Options{}, now)
				at := slices.IndexFunc(report.Findings, func(finding doctor.Finding) bool { return finding.Check == f.id })
				if at < 0 {
					t.Fatalf("no finding of %s: %+v", f.id, report.Findings)
				}
				finding := report.Findings[at]
				if finding.Object != f.object || !strings.Contains(finding.Text, f.text) {
					t.Errorf("got %s: %s\nwant %s: ...%s...", finding.Object, finding.Text, f.object, f.text)
				}
				if finding.Remedy == "" || finding.Level == "" || finding.Docs != "docs/doctor.md#"+string(f.id) {
					t.Errorf("incomplete: %+v", finding)
				}
			})
		}
	}
	for _, id := range doctor.IDs() {
		if !found[id] {
			t.Errorf("no fault for check %s", id)
		}
	}
}

func TestChecksThatCannotReadDoNotPass(t *testing.T) {
	snapshot := healthy(t)
	snapshot.Unread[doctor.SourceCertificate] = "forbidden"
	report := doctor.Inspect(*snapshot, doctor.Options{}, now)
	want := []doctor.NotChecked{
		{Check: "webhook-ca", Reason: "Secret of the certificate: forbidden"}, {Check: "certificate-expiring", Reason: "Secret of the certificate: forbidden"},
	}
	if diff := cmp.Diff(want, report.NotChecked); diff != "" || report.Checks != len(doctor.IDs())-2 {
		t.Errorf("not checked (-want +got):\n%s%d checks", diff, report.Checks)
	}
}

func TestPodsOfAnOwnerAreOneFinding(t *testing.T) {
	snapshot := healthy(t)
	for i, p := range snapshot.Pods {
		snapshot.Pods[i] = *pod(p.Name).Gateless().Obj()
	}
	report := doctor.Inspect(*snapshot, doctor.Options{}, now)
	if len(report.Findings) != 1 || report.Findings[0].More != 2 {
		t.Errorf("got %+v, want a finding with 2 more pods", report.Findings)
	}
}

func TestText(t *testing.T) {
	snapshot := healthy(t)
	for i, p := range snapshot.Pods {
		snapshot.Pods[i] = *pod(p.Name).Gateless().Obj()
	}
	withRule(quarantinedRule())(t, snapshot)
	snapshot.Installed.Mutating[0].Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	snapshot.Unread[doctor.SourceRuleSecrets] = `secrets "token" is forbidden: User "jane" cannot get resource "secrets"`
	got := doctor.Text(doctor.Inspect(*snapshot, doctor.Options{}, now), 80)
	path := filepath.Join("testdata", "report.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func quarantinedRule() *appsv1alpha1.PodTransitionRule {
	r := rule("slow", calling("https://approvals.example", ""))
	r.Status.Rules = []appsv1alpha1.RuleStatus{{Name: "call", Quarantined: &appsv1alpha1.Quarantine{Message: "too expensive", Since: metav1.Time{Time: builders.Epoch}}}}
	return r
}

func TestEachCheckHasASection(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range doctor.IDs() {
		if !bytes.Contains(page, []byte("\n### "+string(id)+"\n")) {
			t.Errorf("docs/doctor.md has no section %s", id)
		}
	}
}
