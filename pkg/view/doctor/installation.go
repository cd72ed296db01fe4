package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
)

// reinstall is the remedy for an object that is missing or differs from the manifests.
const reinstall = "kubectl podops install"

func installationChecks() []check {
	return []check{
		{id: "kubernetes-version", reads: []Source{SourceVersion}, find: (*inspection).kubernetesVersion},
		{id: "webhook-missing", reads: []Source{SourceWebhooks}, find: (*inspection).webhookMissing},
		{id: "webhook-edited", reads: []Source{SourceWebhooks}, find: (*inspection).webhookEdited},
		{id: "admission-policy-missing", reads: []Source{SourcePolicies}, find: (*inspection).policyMissing},
		{id: "admission-policy-edited", reads: []Source{SourcePolicies}, find: (*inspection).policyEdited},
		{id: "crd-missing", reads: []Source{SourceCRDs}, find: (*inspection).crdMissing},
		{id: "crd-outdated", reads: []Source{SourceCRDs}, find: (*inspection).crdOutdated},
	}
}

func (in *inspection) kubernetesVersion() []Finding {
	unsupported := &kubeversion.UnsupportedError{}
	if !errors.As(kubeversion.Check(in.Kubernetes), &unsupported) {
		return nil
	}
	return []Finding{{Level: LevelError, Object: "kube-apiserver", Text: unsupported.Problem, Remedy: unsupported.Remedy}}
}

// webhook is a webhook of either kind: the part of its configuration that concerns requests.
type webhook struct {
	configuration, name string
	client              admissionregistrationv1.WebhookClientConfig
	fields              webhookFields
}

// webhookFields are the fields of a webhook that only the manifests determine.
type webhookFields struct {
	failurePolicy, matchPolicy, sideEffects, reinvocation string
	timeout                                               int32
	rules                                                 []admissionregistrationv1.RuleWithOperations
	namespaces, objects                                   metav1.LabelSelector
	conditions                                            []admissionregistrationv1.MatchCondition
}

const (
	kindMutating   = "mutatingwebhookconfiguration"
	kindValidating = "validatingwebhookconfiguration"
)

// webhooks returns the webhooks of an Installation.
func (i Installation) webhooks() []webhook {
	var all []webhook
	for _, configuration := range i.Mutating {
		for _, w := range configuration.Webhooks {
			all = append(all, webhook{object(kindMutating, "", configuration.Name), w.Name, w.ClientConfig, webhookFields{
				failurePolicy: deref(w.FailurePolicy), matchPolicy: deref(w.MatchPolicy), sideEffects: deref(w.SideEffects),
				reinvocation: deref(w.ReinvocationPolicy), timeout: number(w.TimeoutSeconds), rules: w.Rules,
				namespaces: selector(w.NamespaceSelector), objects: selector(w.ObjectSelector), conditions: w.MatchConditions,
			}})
		}
	}
	for _, configuration := range i.Validating {
		for _, w := range configuration.Webhooks {
			all = append(all, webhook{object(kindValidating, "", configuration.Name), w.Name, w.ClientConfig, webhookFields{
				failurePolicy: deref(w.FailurePolicy), matchPolicy: deref(w.MatchPolicy), sideEffects: deref(w.SideEffects),
				timeout: number(w.TimeoutSeconds), rules: w.Rules,
				namespaces: selector(w.NamespaceSelector), objects: selector(w.ObjectSelector), conditions: w.MatchConditions,
			}})
		}
	}
	return all
}

func (in *inspection) webhookMissing() []Finding {
	installed := in.Installed.webhooks()
	var findings []Finding
	for _, expected := range in.Expected.webhooks() {
		if slices.ContainsFunc(installed, expected.isSame) {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelError, Object: expected.configuration, Remedy: reinstall,
			Text: fmt.Sprintf("has no webhook %s: the API server sends it no reviews", expected.name),
		})
	}
	return findings
}

func (in *inspection) webhookEdited() []Finding {
	installed := in.Installed.webhooks()
	var findings []Finding
	for _, expected := range in.Expected.webhooks() {
		at := slices.IndexFunc(installed, expected.isSame)
		if at < 0 {
			continue
		}
		if changed := expected.fields.differences(installed[at].fields); len(changed) > 0 {
			findings = append(findings, Finding{
				Level: LevelWarning, Object: expected.configuration, Remedy: reinstall,
				Text: fmt.Sprintf("webhook %s differs from the manifests in %s", expected.name, strings.Join(changed, ", ")),
			})
		}
	}
	return findings
}

func (w webhook) isSame(other webhook) bool {
	return w.configuration == other.configuration && w.name == other.name
}

// differences returns the names of the fields that differ.
func (f webhookFields) differences(other webhookFields) []string {
	var changed []string
	for _, field := range []struct {
		name string
		same bool
	}{
		{"failurePolicy", f.failurePolicy == other.failurePolicy},
		{"matchPolicy", f.matchPolicy == other.matchPolicy},
		{"sideEffects", f.sideEffects == other.sideEffects},
		{"reinvocationPolicy", f.reinvocation == other.reinvocation},
		{"timeoutSeconds", f.timeout == other.timeout},
		{"rules", equality.Semantic.DeepEqual(f.rules, other.rules)},
		{"namespaceSelector", equality.Semantic.DeepEqual(f.namespaces, other.namespaces)},
		{"objectSelector", equality.Semantic.DeepEqual(f.objects, other.objects)},
		{"matchConditions", equality.Semantic.DeepEqual(f.conditions, other.conditions)},
	} {
		if !field.same {
			changed = append(changed, field.name)
		}
	}
	return changed
}

func (in *inspection) policyMissing() []Finding {
	var findings []Finding
	missing := func(kind, name string) {
		findings = append(findings, Finding{
			Level: LevelError, Object: object(kind, "", name), Remedy: reinstall,
			Text: "does not exist: the API server does not check the requests that it covers",
		})
	}
	for _, expected := range in.Expected.Policies {
		if !slices.ContainsFunc(in.Installed.Policies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool { return p.Name == expected.Name }) {
			missing("validatingadmissionpolicy", expected.Name)
		}
	}
	for _, expected := range in.Expected.Bindings {
		if !slices.ContainsFunc(in.Installed.Bindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == expected.Name }) {
			missing("validatingadmissionpolicybinding", expected.Name)
		}
	}
	return findings
}

func (in *inspection) policyEdited() []Finding {
	var findings []Finding
	edited := func(kind, name string, changed []string) {
		if len(changed) > 0 {
			findings = append(findings, Finding{
				Level: LevelWarning, Object: object(kind, "", name), Remedy: reinstall,
				Text: "differs from the manifests in " + strings.Join(changed, ", "),
			})
		}
	}
	for _, expected := range in.Expected.Policies {
		for _, installed := range in.Installed.Policies {
			if installed.Name == expected.Name {
				edited("validatingadmissionpolicy", expected.Name, policyDifferences(expected.Spec, installed.Spec))
			}
		}
	}
	for _, expected := range in.Expected.Bindings {
		for _, installed := range in.Installed.Bindings {
			if installed.Name == expected.Name {
				edited("validatingadmissionpolicybinding", expected.Name, bindingDifferences(expected.Spec, installed.Spec))
			}
		}
	}
	return findings
}

func policyDifferences(want, got admissionregistrationv1.ValidatingAdmissionPolicySpec) []string {
	var changed []string
	if deref(want.FailurePolicy) != deref(got.FailurePolicy) {
		changed = append(changed, "failurePolicy")
	}
	if !equality.Semantic.DeepEqual(want.Validations, got.Validations) || !equality.Semantic.DeepEqual(want.Variables, got.Variables) {
		changed = append(changed, "validations")
	}
	if !equality.Semantic.DeepEqual(want.MatchConditions, got.MatchConditions) || !sameMatch(want.MatchConstraints, got.MatchConstraints) {
		changed = append(changed, "matchConstraints")
	}
	return changed
}

func bindingDifferences(want, got admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) []string {
	var changed []string
	if !equality.Semantic.DeepEqual(want.ValidationActions, got.ValidationActions) {
		changed = append(changed, "validationActions")
	}
	if want.PolicyName != got.PolicyName || !equality.Semantic.DeepEqual(want.ParamRef, got.ParamRef) {
		changed = append(changed, "paramRef")
	}
	if !sameMatch(want.MatchResources, got.MatchResources) {
		changed = append(changed, "matchResources")
	}
	return changed
}

// sameMatch compares the requests that two policies match, without the defaults of the API server.
func sameMatch(want, got *admissionregistrationv1.MatchResources) bool {
	if want == nil || got == nil {
		return (want == nil) == (got == nil)
	}
	return equality.Semantic.DeepEqual(selector(want.NamespaceSelector), selector(got.NamespaceSelector)) &&
		equality.Semantic.DeepEqual(selector(want.ObjectSelector), selector(got.ObjectSelector)) &&
		equality.Semantic.DeepEqual(want.ResourceRules, got.ResourceRules) &&
		equality.Semantic.DeepEqual(want.ExcludeResourceRules, got.ExcludeResourceRules)
}

func (in *inspection) crdMissing() []Finding {
	var findings []Finding
	for _, expected := range in.Expected.CRDs {
		if in.installedCRD(expected.Name) == nil {
			findings = append(findings, Finding{
				Level: LevelError, Object: object("crd", "", expected.Name), Remedy: reinstall,
				Text: fmt.Sprintf("does not exist: a %s can be neither created nor read", expected.Spec.Names.Kind),
			})
		}
	}
	return findings
}

func (in *inspection) crdOutdated() []Finding {
	var findings []Finding
	for _, expected := range in.Expected.CRDs {
		installed := in.installedCRD(expected.Name)
		if installed == nil || sameSchemas(expected, *installed) {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelWarning, Object: object("crd", "", expected.Name), Remedy: reinstall,
			Text: "has the schema of another version of PodOps: fields may be missing, or not be validated",
		})
	}
	return findings
}

func (in *inspection) installedCRD(name string) *apiextensionsv1.CustomResourceDefinition {
	for i := range in.Installed.CRDs {
		if in.Installed.CRDs[i].Name == name {
			return &in.Installed.CRDs[i]
		}
	}
	return nil
}

func sameSchemas(want, got apiextensionsv1.CustomResourceDefinition) bool {
	return slices.EqualFunc(want.Spec.Versions, got.Spec.Versions, func(w, g apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return w.Name == g.Name && w.Served == g.Served && w.Storage == g.Storage && equality.Semantic.DeepEqual(w.Schema, g.Schema)
	})
}

func deref[T ~string](value *T) string {
	if value == nil {
		return ""
	}
	return string(*value)
}

func number(value *int32) int32 {
	if value == nil {
		return 0
	}
	return *value
}

// selector returns a selector; an absent selector is an empty selector.
func selector(value *metav1.LabelSelector) metav1.LabelSelector {
	if value == nil {
		return metav1.LabelSelector{}
	}
	return *value
}
