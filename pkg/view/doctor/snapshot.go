package doctor

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Source is a kind of objects that checks read.
type Source string

// The sources of a Snapshot.
const (
	SourceVersion     Source = "version of the API server"
	SourceWebhooks    Source = "webhook configurations"
	SourcePolicies    Source = "admission policies"
	SourceGuards      Source = "webhook configurations and admission policies of others"
	SourceCRDs        Source = "CustomResourceDefinitions"
	SourceManager     Source = "Deployment, Lease and webhook Service of the manager"
	SourceCertificate Source = "Secret of the certificate"
	SourceProbe       Source = "dry run of a PodTransitionRule"
	SourceNamespaces  Source = "namespaces"
	SourcePods        Source = "pods"
	SourceNodes       Source = "nodes"
	SourceServices    Source = "Services"
	SourceWorkloads   Source = "Deployments, StatefulSets and DaemonSets"
	SourceBudgets     Source = "PodDisruptionBudgets"
	SourceRules       Source = "PodTransitionRules"
	SourceShared      Source = "PodTransitionPolicies"
	SourceOperations  Source = "PodOperations"
	SourceAdapters    Source = "TrafficAdapters"
	SourceRuleSecrets Source = "Secrets of webhook rules"
)

// Installation has the objects of config/webhook and config/crd, from the manifests or from a cluster.
type Installation struct {
	Mutating   []admissionregistrationv1.MutatingWebhookConfiguration
	Validating []admissionregistrationv1.ValidatingWebhookConfiguration
	Policies   []admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings   []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	CRDs       []apiextensionsv1.CustomResourceDefinition
}

// Manager has the objects of the manager's namespace; nil without such a namespace.
type Manager struct {
	// Namespace of the manager.
	Namespace string

	Deployment     *appsv1.Deployment
	Lease          *coordinationv1.Lease
	Service        *corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice

	// Certificate is the Secret that replicas serve webhooks with.
	Certificate *corev1.Secret

	// Refusal is the error of a dry run that creates a PodTransitionRule; empty when the webhooks answered.
	Refusal string
}

// Snapshot has the contents of a cluster at the time of reading. Namespaced objects are from the
// inspected namespaces.
type Snapshot struct {
	// Expected has the objects of the manifests; the others were read.
	Expected, Installed Installation
	Manager             Manager

	// Guards has the webhook configurations and admission policies that are not of PodOps.
	Guards Installation

	// Kubernetes is the version of the API server.
	Kubernetes version.Info

	Namespaces   []corev1.Namespace
	Pods         []corev1.Pod
	Nodes        []corev1.Node
	Services     []corev1.Service
	Deployments  []appsv1.Deployment
	StatefulSets []appsv1.StatefulSet
	DaemonSets   []appsv1.DaemonSet
	Budgets      []policyv1.PodDisruptionBudget
	Rules        []appsv1alpha1.PodTransitionRule
	Shared       []appsv1alpha1.PodTransitionPolicy
	Operations   []appsv1alpha1.PodOperation
	Adapters     []appsv1alpha1.TrafficAdapter

	// RuleSecrets are the Secrets that rules of the inspected namespaces refer to, as far as they exist. Only
	// the names of their keys are needed.
	RuleSecrets []corev1.Secret

	// Unread has the error for each source that could not be read.
	Unread map[Source]string
}

// Options are the thresholds of Inspect.
type Options struct {
	// Long is time that a pod may stay in a phase before it is a finding; DefaultLong if zero.
	Long time.Duration
}

// DefaultLong is time that a pod may stay in a phase before it is a finding.
const DefaultLong = 30 * time.Minute

// inspection has a Snapshot and its indexes.
type inspection struct {
	Snapshot
	now  time.Time
	long time.Duration

	// pods are the live controlled pods by namespace.
	pods map[string][]*corev1.Pod

	// services by namespace and name.
	services map[types.NamespacedName]*corev1.Service

	// ofServices are the Services by namespace and protection finalizer.
	ofServices map[string]map[string]*corev1.Service

	// operations are the ids of the PodOperations.
	operations map[string]bool

	// inspected are the namespaces of the Snapshot.
	inspected map[string]bool
}

func newInspection(snapshot Snapshot, options Options, now time.Time) *inspection {
	in := &inspection{
		Snapshot: snapshot, now: now, long: options.Long,
		pods: map[string][]*corev1.Pod{}, services: map[types.NamespacedName]*corev1.Service{},
		ofServices: map[string]map[string]*corev1.Service{}, operations: map[string]bool{}, inspected: map[string]bool{},
	}
	if in.long == 0 {
		in.long = DefaultLong
	}
	for i := range snapshot.Namespaces {
		in.inspected[snapshot.Namespaces[i].Name] = true
	}
	for i := range snapshot.Services {
		service := &snapshot.Services[i]
		in.services[types.NamespacedName{Namespace: service.Namespace, Name: service.Name}] = service
		if in.ofServices[service.Namespace] == nil {
			in.ofServices[service.Namespace] = map[string]*corev1.Service{}
		}
		in.ofServices[service.Namespace][resourceconsist.GenerateLifecycleFinalizer(service.Name)] = service
	}
	for i := range snapshot.Operations {
		in.operations[appsv1alpha1.PodOperationIDPrefix+string(snapshot.Operations[i].UID)] = true
	}
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if appsv1alpha1.IsControlled(pod.Labels) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			in.pods[pod.Namespace] = append(in.pods[pod.Namespace], pod)
		}
	}
	return in
}

// selected returns the live controlled pods of a namespace that a selector matches.
func (in *inspection) selected(namespace string, selector *metav1.LabelSelector) []*corev1.Pod {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(in.pods[namespace]), func(pod *corev1.Pod) bool { return !parsed.Matches(labels.Set(pod.Labels)) })
}
