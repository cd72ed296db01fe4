package offline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Objects are the objects that verdicts depend on. The zero value is empty.
type Objects struct {
	Rules      []*appsv1alpha1.PodTransitionRule
	Policies   []*appsv1alpha1.PodTransitionPolicy
	Pods       []*corev1.Pod
	Owners     []podindex.Owner
	Namespaces []*corev1.Namespace
	Budgets    []*policyv1.PodDisruptionBudget
	Nodes      []*corev1.Node
	Approvals  []*appsv1alpha1.PodOperationApproval
}

// Add adds a copy of an object, and reports whether verdicts depend on its kind. An object without a
// namespace, UID or generation, as files have them, gets the given namespace, a UID of its name, and 1.
func (o *Objects) Add(object metav1.Object, namespace string) bool {
	switch given := object.(type) {
	case *appsv1alpha1.PodTransitionRule:
		o.Rules = append(o.Rules, completed(given.DeepCopy(), "PodTransitionRule", namespace))
	case *appsv1alpha1.PodTransitionPolicy:
		o.Policies = append(o.Policies, completed(given.DeepCopy(), "PodTransitionPolicy", ""))
	case *corev1.Pod:
		o.Pods = append(o.Pods, completed(given.DeepCopy(), "Pod", namespace))
	case *corev1.Namespace:
		o.Namespaces = append(o.Namespaces, completed(given.DeepCopy(), "Namespace", ""))
	case *corev1.Node:
		o.Nodes = append(o.Nodes, given.DeepCopy())
	case *policyv1.PodDisruptionBudget:
		o.Budgets = append(o.Budgets, completed(given.DeepCopy(), "PodDisruptionBudget", namespace))
	case *appsv1alpha1.PodOperationApproval:
		o.Approvals = append(o.Approvals, completed(given.DeepCopy(), "PodOperationApproval", namespace))
	default:
		owner, counts := podindex.NewOwner(stamped(object))
		if !counts {
			return false
		}
		owner.Namespace, owner.UID = cmp.Or(owner.Namespace, namespace), cmp.Or(owner.UID, derivedUID(owner.Kind, cmp.Or(owner.Namespace, namespace), owner.Name))
		o.Owners = append(o.Owners, owner)
	}
	return true
}

// stamped returns a copy of a workload with its revision, as the cache of the manager has it.
func stamped(object metav1.Object) metav1.Object {
	original, ok := object.(runtime.Object)
	if !ok {
		return object
	}
	workload, ok := original.DeepCopyObject().(metav1.Object)
	if !ok {
		return object
	}
	approval.Stamp(workload)
	return workload
}

// completed sets the fields that the API server would set.
func completed[T metav1.Object](object T, kind, namespace string) T {
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	if object.GetUID() == "" {
		object.SetUID(derivedUID(kind, object.GetNamespace(), object.GetName()))
	}
	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}
	if object.GetResourceVersion() == "" {
		object.SetResourceVersion("1")
	}
	return object
}

func derivedUID(kind, namespace, name string) types.UID {
	return types.UID(strings.ToLower(kind) + "-" + namespace + "-" + name)
}

// NamespacesOfPods returns the namespaces that have pods, sorted.
func (o *Objects) NamespacesOfPods() []string {
	var names []string
	for _, pod := range o.Pods {
		names = append(names, pod.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Replace replaces the PodTransitionRules and PodTransitionPolicies of the same names, and adds the
// others.
func (o *Objects) Replace(with Objects) {
	for _, rule := range with.Rules {
		o.Rules = slices.DeleteFunc(o.Rules, func(old *appsv1alpha1.PodTransitionRule) bool {
			return old.Namespace == rule.Namespace && old.Name == rule.Name
		})
		o.Rules = append(o.Rules, rule)
	}
	for _, policy := range with.Policies {
		o.Policies = slices.DeleteFunc(o.Policies, func(old *appsv1alpha1.PodTransitionPolicy) bool { return old.Name == policy.Name })
		o.Policies = append(o.Policies, policy)
	}
}

// index returns an index of the objects at a time.
func (o *Objects) index(now time.Time) (*podindex.Index, error) {
	index := podindex.NewIndex(func(string) {})
	for _, namespace := range o.Namespaces {
		index.SetNamespace(namespace.Name, namespace.Labels)
		index.SetBreakGlass(namespace.Name, podstate.BreakGlass(namespace.Annotations))
	}
	for _, policy := range o.Policies {
		index.SetPolicy(policy)
	}
	for _, rule := range o.Rules {
		index.SetRule(rule)
	}
	for _, owner := range o.Owners {
		index.SetOwner(owner)
	}
	for _, budget := range o.Budgets {
		index.SetDisruptionBudget(podindex.NewDisruptionBudget(budget))
	}
	for _, decision := range o.Approvals {
		index.SetApproval(decision)
	}
	for _, node := range o.Nodes {
		index.SetNode(node.Name, podindex.NewNode(node))
	}
	// As in the cache of the manager: rules do not see other pods.
	var pods []any
	for _, pod := range o.Pods {
		if appsv1alpha1.IsControlled(pod.Labels) {
			pods = append(pods, pod)
		}
	}
	if err := index.PodStore().Replace(pods, "1"); err != nil {
		return nil, fmt.Errorf("indexing the pods: %w", err)
	}
	o.setUncontrolled(index, now)
	// Rules that read the labels of a namespace wait until it is seen.
	for _, name := range o.NamespacesOfPods() {
		known := slices.ContainsFunc(o.Namespaces, func(namespace *corev1.Namespace) bool { return namespace.Name == name })
		if !known {
			index.SetNamespace(name, map[string]string{corev1.LabelMetadataName: name})
		}
	}
	return index, nil
}

// setUncontrolled sets the available pods without the control label, for the same workloads as package uncontrolledpods does in the
// manager.
func (o *Objects) setUncontrolled(index *podindex.Index, now time.Time) {
	owners, controls, others := map[types.UID]podindex.Owner{}, map[types.UID]bool{}, map[types.UID][]*corev1.Pod{}
	for _, owner := range o.Owners {
		owners[owner.UID] = owner
	}
	for _, pod := range o.Pods {
		controller := metav1.GetControllerOfNoCopy(pod)
		switch {
		case controller == nil:
		case appsv1alpha1.IsControlled(pod.Labels):
			controls[controller.UID] = true
			controls[owners[controller.UID].Controller] = true
		default:
			others[controller.UID] = append(others[controller.UID], pod)
		}
	}
	for uid, pods := range others {
		owner := owners[uid]
		of := owner
		if owner.Kind == "ReplicaSet" && !appsv1alpha1.IsControlled(owner.TemplateLabels) {
			of = owners[owner.Controller]
		}
		if owner.Kind == "Job" || !controls[of.UID] || !appsv1alpha1.IsControlled(of.TemplateLabels) {
			continue
		}
		available, _ := podindex.AvailablePods(uid, owner.MinReady, pods, now)
		index.SetUncontrolled(owner.Namespace, uid, available)
	}
}
