package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/installation"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

const (
	// The names of the manager's objects, in config.
	serviceName     = "podops-webhook"
	certificateName = "podops-webhook-certs"
)

// reader reads a Snapshot. Sources that may not be read are noted in it.
type reader struct {
	client    client.Client
	namespace string // empty for all
	version   func(context.Context) (version.Info, error)
	progress  func(source doctor.Source)
	snapshot  *doctor.Snapshot
}

// read returns a Snapshot of a namespace, or of all if it is empty. It fails only when ctx ends: each source
// that cannot be read is noted.
func read(ctx context.Context, r reader, expected doctor.Installation, managerNamespace string) (doctor.Snapshot, error) {
	r.snapshot = &doctor.Snapshot{
		Expected: expected, Manager: doctor.Manager{Namespace: managerNamespace}, Unread: map[doctor.Source]string{},
	}
	for _, step := range []struct {
		source doctor.Source
		read   func(context.Context) error
	}{
		{doctor.SourceVersion, func(ctx context.Context) (err error) {
			r.snapshot.Kubernetes, err = r.version(ctx)
			return err
		}},
		{doctor.SourceWebhooks, r.webhooks},
		{doctor.SourcePolicies, r.policies},
		{doctor.SourceGuards, r.guards},
		{doctor.SourceCRDs, r.crds},
		{doctor.SourceManager, r.manager},
		{doctor.SourceCertificate, r.certificate},
		{doctor.SourceProbe, r.probe},
		{doctor.SourceNamespaces, r.namespaces},
		{doctor.SourcePods, func(ctx context.Context) error { return list(ctx, r, &corev1.PodList{}, &r.snapshot.Pods) }},
		{doctor.SourceNodes, func(ctx context.Context) error {
			return list(ctx, r.everywhere(), &corev1.NodeList{}, &r.snapshot.Nodes)
		}},
		{doctor.SourceServices, func(ctx context.Context) error { return list(ctx, r, &corev1.ServiceList{}, &r.snapshot.Services) }},
		{doctor.SourceWorkloads, r.workloads},
		{doctor.SourceBudgets, func(ctx context.Context) error {
			return list(ctx, r, &policyv1.PodDisruptionBudgetList{}, &r.snapshot.Budgets)
		}},
		{doctor.SourceRules, func(ctx context.Context) error {
			return list(ctx, r, &appsv1alpha1.PodTransitionRuleList{}, &r.snapshot.Rules)
		}},
		{doctor.SourceShared, func(ctx context.Context) error {
			return list(ctx, r.everywhere(), &appsv1alpha1.PodTransitionPolicyList{}, &r.snapshot.Shared)
		}},
		{doctor.SourceOperations, func(ctx context.Context) error {
			return list(ctx, r, &appsv1alpha1.PodOperationList{}, &r.snapshot.Operations)
		}},
		{doctor.SourceAdapters, func(ctx context.Context) error {
			return list(ctx, r.everywhere(), &appsv1alpha1.TrafficAdapterList{}, &r.snapshot.Adapters)
		}},
		{doctor.SourceRuleSecrets, r.ruleSecrets},
	} {
		r.progress(step.source)
		if err := step.read(ctx); err != nil {
			if ctx.Err() != nil {
				return doctor.Snapshot{}, fmt.Errorf("reading %s: %w", step.source, err)
			}
			r.snapshot.Unread[step.source] = errorReason(err)
		}
	}
	return *r.snapshot, nil
}

// errorReason returns the error of an API server in a few words.
func errorReason(err error) string {
	if meta.IsNoMatchError(err) {
		return "the API server has no such kind: the CustomResourceDefinition is missing"
	}
	return err.Error()
}

// everywhere returns the reader for objects without a namespace.
func (r reader) everywhere() reader {
	r.namespace = ""
	return r
}

// list reads all objects of a kind.
func list[T any, O interface {
	*T
	client.Object
}](ctx context.Context, r reader, page client.ObjectList, all *[]T) error {
	objects, err := cluster.ListAll[O](ctx, r.client, page, client.InNamespace(r.namespace))
	for _, object := range objects {
		*all = append(*all, *object)
	}
	return err
}

// get reads an object, and returns nil if it does not exist.
func get[T any, O interface {
	*T
	client.Object
}](ctx context.Context, c client.Client, namespace, name string) (*T, error) {
	var object T
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, O(&object))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &object, nil
}

func (r reader) webhooks(ctx context.Context) error {
	for _, expected := range r.snapshot.Expected.Mutating {
		found, err := get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, r.client, "", expected.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.Installed.Mutating = append(r.snapshot.Installed.Mutating, *found)
		}
	}
	for _, expected := range r.snapshot.Expected.Validating {
		found, err := get[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, r.client, "", expected.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.Installed.Validating = append(r.snapshot.Installed.Validating, *found)
		}
	}
	return nil
}

func (r reader) policies(ctx context.Context) error {
	for _, expected := range r.snapshot.Expected.Policies {
		found, err := get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, r.client, "", expected.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.Installed.Policies = append(r.snapshot.Installed.Policies, *found)
		}
	}
	for _, expected := range r.snapshot.Expected.Bindings {
		found, err := get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, r.client, "", expected.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.Installed.Bindings = append(r.snapshot.Installed.Bindings, *found)
		}
	}
	return nil
}

// guards reads the webhook configurations and admission policies that the manifests do not have.
func (r reader) guards(ctx context.Context) error {
	known := map[string]bool{}
	for _, object := range r.snapshot.Expected.Mutating {
		known[object.Name] = true
	}
	for _, object := range r.snapshot.Expected.Validating {
		known[object.Name] = true
	}
	for _, object := range r.snapshot.Expected.Policies {
		known[object.Name] = true
	}
	guards, all := &r.snapshot.Guards, r.everywhere()
	if err := errors.Join(
		list(ctx, all, &admissionregistrationv1.MutatingWebhookConfigurationList{}, &guards.Mutating),
		list(ctx, all, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, &guards.Validating),
		list(ctx, all, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, &guards.Policies),
		list(ctx, all, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, &guards.Bindings),
	); err != nil {
		return err
	}
	guards.Mutating = slices.DeleteFunc(guards.Mutating, func(o admissionregistrationv1.MutatingWebhookConfiguration) bool { return known[o.Name] })
	guards.Validating = slices.DeleteFunc(guards.Validating, func(o admissionregistrationv1.ValidatingWebhookConfiguration) bool { return known[o.Name] })
	guards.Policies = slices.DeleteFunc(guards.Policies, func(o admissionregistrationv1.ValidatingAdmissionPolicy) bool { return known[o.Name] })
	return nil
}

func (r reader) crds(ctx context.Context) error {
	for _, expected := range r.snapshot.Expected.CRDs {
		found, err := get[apiextensionsv1.CustomResourceDefinition](ctx, r.client, "", expected.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.Installed.CRDs = append(r.snapshot.Installed.CRDs, *found)
		}
	}
	return nil
}

func (r reader) manager(ctx context.Context) (err error) {
	m := &r.snapshot.Manager
	if m.Deployment, err = get[appsv1.Deployment](ctx, r.client, m.Namespace, appsv1alpha1.ManagerName); err != nil {
		return err
	}
	if m.Lease, err = get[coordinationv1.Lease](ctx, r.client, m.Namespace, appsv1alpha1.ManagerName); err != nil {
		return err
	}
	if m.Service, err = get[corev1.Service](ctx, r.client, m.Namespace, serviceName); err != nil {
		return err
	}
	var slices discoveryv1.EndpointSliceList
	err = r.client.List(ctx, &slices, client.InNamespace(m.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: serviceName})
	m.EndpointSlices = slices.Items
	return err
}

func (r reader) certificate(ctx context.Context) (err error) {
	r.snapshot.Manager.Certificate, err = get[corev1.Secret](ctx, r.client, r.snapshot.Manager.Namespace, certificateName)
	return err
}

// probe creates a PodTransitionRule in a dry run, which the webhooks review.
func (r reader) probe(ctx context.Context) error {
	namespace := r.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	err := r.client.Create(ctx, installation.Probe(namespace), client.DryRunAll)
	switch {
	case err == nil:
		return nil
	case apierrors.IsInternalError(err), strings.Contains(err.Error(), "failed calling webhook"):
		r.snapshot.Manager.Refusal = err.Error()
		return nil
	default:
		return err
	}
}

// namespaces reads the inspected namespaces and the namespace of the manager.
func (r reader) namespaces(ctx context.Context) error {
	if r.namespace == "" {
		return list(ctx, r, &corev1.NamespaceList{}, &r.snapshot.Namespaces)
	}
	for _, name := range []string{r.namespace, r.snapshot.Manager.Namespace} {
		found, err := get[corev1.Namespace](ctx, r.client, "", name)
		if err != nil {
			return err
		}
		if found != nil && (len(r.snapshot.Namespaces) == 0 || r.snapshot.Namespaces[0].Name != name) {
			r.snapshot.Namespaces = append(r.snapshot.Namespaces, *found)
		}
	}
	return nil
}

func (r reader) workloads(ctx context.Context) error {
	return errors.Join(
		list(ctx, r, &appsv1.DeploymentList{}, &r.snapshot.Deployments),
		list(ctx, r, &appsv1.StatefulSetList{}, &r.snapshot.StatefulSets),
		list(ctx, r, &appsv1.DaemonSetList{}, &r.snapshot.DaemonSets),
	)
}

// ruleSecrets reads the Secrets that webhook rules name, and no other.
func (r reader) ruleSecrets(ctx context.Context) error {
	seen := map[types.NamespacedName]bool{}
	for _, name := range doctor.ReferencedSecrets(r.snapshot.Rules) {
		if seen[name] {
			continue
		}
		seen[name] = true
		found, err := get[corev1.Secret](ctx, r.client, name.Namespace, name.Name)
		if err != nil {
			return err
		}
		if found != nil {
			r.snapshot.RuleSecrets = append(r.snapshot.RuleSecrets, *found)
		}
	}
	return nil
}
