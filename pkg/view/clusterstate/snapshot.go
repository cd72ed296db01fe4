package clusterstate

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Snapshot has the objects of one namespace. Lists are sorted by name. Objects are not modified.
type Snapshot struct {
	Namespace string

	Pods         []*corev1.Pod
	Deployments  []*appsv1.Deployment
	ReplicaSets  []*appsv1.ReplicaSet
	StatefulSets []*appsv1.StatefulSet
	DaemonSets   []*appsv1.DaemonSet

	Rules          []*appsv1alpha1.PodTransitionRule
	Budgets        []*policyv1.PodDisruptionBudget
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice

	// Operations are the PodOperations of the namespace.
	Operations []*appsv1alpha1.PodOperation

	// Events are the events of PodOps in the namespace, oldest first.
	Events []*corev1.Event

	// Policies are the PodTransitionPolicies of the cluster.
	Policies []*appsv1alpha1.PodTransitionPolicy

	// Adapters are the TrafficAdapters of the cluster.
	Adapters []Adapter

	// Manager has the known facts of the manager.
	Manager Manager

	// BreakGlass is the reason of the namespace's break-glass annotation, and ClusterBreakGlass the
	// reason of the annotation of the manager's namespace; empty without the annotation.
	BreakGlass, ClusterBreakGlass string

	// Unreadable are the resources that could not be read, sorted.
	Unreadable []Unreadable
}

// Adapter is a TrafficAdapter.
type Adapter struct {
	*appsv1alpha1.TrafficAdapter

	// Services are the names of the Services in the namespace that it matches, sorted.
	Services []string
}

// Manager has the known facts of the manager.
type Manager struct {
	// Namespace that the manager runs in.
	Namespace string

	// Lease is whether the Lease of the manager could be read and exists. The fields below are empty otherwise.
	Lease bool

	// Holder is the identity of the leader, empty after it has ended in good order.
	Holder string

	// Renewed is when the leader last renewed the Lease, and Duration how long that counts.
	Renewed  time.Time
	Duration time.Duration
}

// leaseGrace is the time after the end of a Lease at which the manager counts as away: clocks
// differ, and another replica may take over meanwhile.
const leaseGrace = 10 * time.Second

// Away reports whether no manager leads, according to the Lease.
func (m Manager) Away(now time.Time) bool {
	return m.Lease && (m.Holder == "" || now.After(m.Renewed.Add(m.Duration+leaseGrace)))
}

// Unreadable is a resource that could not be read.
type Unreadable struct {
	// Resource is its name, such as "services".
	Resource string

	// Reason is the error in one line.
	Reason string
}

// CannotRead reports whether a resource could not be read.
func (s *Snapshot) CannotRead(resource string) bool {
	return slices.ContainsFunc(s.Unreadable, func(u Unreadable) bool { return u.Resource == resource })
}

// Pod returns a pod by name; nil if the snapshot does not have it.
func (s *Snapshot) Pod(name string) *corev1.Pod { return named(s.Pods, name) }

// Deployment returns a Deployment by name; nil if the snapshot does not have it.
func (s *Snapshot) Deployment(name string) *appsv1.Deployment { return named(s.Deployments, name) }

// ReplicaSet returns a ReplicaSet by name; nil if the snapshot does not have it.
func (s *Snapshot) ReplicaSet(name string) *appsv1.ReplicaSet { return named(s.ReplicaSets, name) }

// StatefulSet returns a StatefulSet by name; nil if the snapshot does not have it.
func (s *Snapshot) StatefulSet(name string) *appsv1.StatefulSet { return named(s.StatefulSets, name) }

// DaemonSet returns a DaemonSet by name; nil if the snapshot does not have it.
func (s *Snapshot) DaemonSet(name string) *appsv1.DaemonSet { return named(s.DaemonSets, name) }

// Rule returns a PodTransitionRule by name; nil if the snapshot does not have it.
func (s *Snapshot) Rule(name string) *appsv1alpha1.PodTransitionRule { return named(s.Rules, name) }

// Service returns a Service by name; nil if the snapshot does not have it.
func (s *Snapshot) Service(name string) *corev1.Service { return named(s.Services, name) }

// Budget returns a PodDisruptionBudget by name; nil if the snapshot does not have it.
func (s *Snapshot) Budget(name string) *policyv1.PodDisruptionBudget { return named(s.Budgets, name) }

// Operation returns a PodOperation by UID; nil if the snapshot does not have it.
func (s *Snapshot) Operation(uid types.UID) *appsv1alpha1.PodOperation {
	for _, operation := range s.Operations {
		if operation.UID == uid {
			return operation
		}
	}
	return nil
}

// named returns the object with a name from a sorted list.
func named[T metav1.Object](objects []T, name string) (found T) {
	at, ok := slices.BinarySearchFunc(objects, name, func(object T, name string) int { return strings.Compare(object.GetName(), name) })
	if ok {
		found = objects[at]
	}
	return found
}

// State returns the state of a pod, with the employers that are gone.
func (s *Snapshot) State(pod *corev1.Pod) podstate.State {
	if s.CannotRead("services") {
		return podstate.Of(pod, nil)
	}
	return podstate.Of(pod, func(employer string) bool { return s.Gone(pod, employer) })
}

// Gone reports whether an employer of a pod will never put its finalizer on the pod: a Service that does
// not exist, is terminating, is in another namespace or does not select the pod. Employers of other kinds
// are never gone.
func (s *Snapshot) Gone(pod *corev1.Pod, employer string) bool {
	key, ok := podstate.ParseEmployer(employer)
	if !ok {
		return false
	}
	service := s.Service(key.Name)
	return key.Namespace != pod.Namespace || service == nil || service.DeletionTimestamp != nil || !podstate.Selects(service, pod)
}

// AdapterFor returns the TrafficAdapter of a Service; nil if no TrafficAdapter matches it.
func (s *Snapshot) AdapterFor(service string) *Adapter {
	for i := range s.Adapters {
		if slices.Contains(s.Adapters[i].Services, service) {
			return &s.Adapters[i]
		}
	}
	return nil
}

// RulesFor returns the PodTransitionRules that select a pod, sorted by name. Selectors that cannot be read
// select no pod.
func (s *Snapshot) RulesFor(pod *corev1.Pod) []*appsv1alpha1.PodTransitionRule {
	return slices.DeleteFunc(slices.Clone(s.Rules), func(r *appsv1alpha1.PodTransitionRule) bool { return !selects(r.Spec.Selector, pod) })
}

// BudgetsFor returns the PodDisruptionBudgets that select a pod, sorted by name.
func (s *Snapshot) BudgetsFor(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	return slices.DeleteFunc(slices.Clone(s.Budgets), func(b *policyv1.PodDisruptionBudget) bool { return !selects(b.Spec.Selector, pod) })
}

// Selected returns the pods that a label selector matches.
func (s *Snapshot) Selected(selector *metav1.LabelSelector) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(s.Pods), func(pod *corev1.Pod) bool { return !selects(selector, pod) })
}

// selects reports whether a label selector matches a pod. An empty or invalid selector matches no
// pod.
func selects(selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return false
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(pod.Labels))
}

// Owner returns the workload at the top of the owner chain of a pod that the snapshot has; zero
// if the pod has no controller.
func (s *Snapshot) Owner(pod *corev1.Pod) rule.Owner {
	owner := objectController(pod)
	if owner.Kind == "ReplicaSet" {
		if set := s.ReplicaSet(owner.Name); set != nil && set.UID == owner.UID {
			if above := objectController(set); above.Kind != "" {
				return above
			}
		}
	}
	return owner
}

// Template returns the pod template of a workload; nil if the snapshot does not have it.
func (s *Snapshot) Template(owner rule.Owner) *corev1.PodTemplateSpec {
	switch owner.Kind {
	case "Deployment":
		if deployment := s.Deployment(owner.Name); deployment != nil {
			return &deployment.Spec.Template
		}
	case "ReplicaSet":
		if set := s.ReplicaSet(owner.Name); set != nil {
			return &set.Spec.Template
		}
	case "StatefulSet":
		if set := s.StatefulSet(owner.Name); set != nil {
			return &set.Spec.Template
		}
	case "DaemonSet":
		if set := s.DaemonSet(owner.Name); set != nil {
			return &set.Spec.Template
		}
	}
	return nil
}

// PodsOwnedBy returns a workload's pods in the snapshot, including the pods of its ReplicaSets.
func (s *Snapshot) PodsOwnedBy(owner types.UID) []*corev1.Pod {
	sets := map[types.UID]bool{owner: true}
	for _, set := range s.ReplicaSetsOwnedBy(owner) {
		sets[set.UID] = true
	}
	return slices.DeleteFunc(slices.Clone(s.Pods), func(pod *corev1.Pod) bool { return !sets[objectController(pod).UID] })
}

// ReplicaSetsOwnedBy returns the ReplicaSets of a Deployment.
func (s *Snapshot) ReplicaSetsOwnedBy(deployment types.UID) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(s.ReplicaSets), func(set *appsv1.ReplicaSet) bool { return objectController(set).UID != deployment })
}

func objectController(object metav1.Object) rule.Owner {
	reference := metav1.GetControllerOfNoCopy(object)
	if reference == nil {
		return rule.Owner{}
	}
	return rule.Owner{Kind: reference.Kind, Name: reference.Name, UID: reference.UID}
}
