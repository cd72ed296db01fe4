package podtransitionrule

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/sim"
)

// simNamespace is where everything of the simulation lives.
const simNamespace = "shop"

// server is an API server with one namespace: pods, PodTransitionRules and PodDisruptionBudgets under one
// counter of resourceVersions, preconditions on every write, and the history that
// watches deliver. What it stores is never modified, so all replicas may share it.
type server struct {
	version int
	uids    int
	pods    map[string]*corev1.Pod
	rules   map[string]*appsv1alpha1.PodTransitionRule
	budgets map[string]*policyv1.PodDisruptionBudget

	podHistory    []podEvent
	ruleHistory   []ruleEvent
	budgetHistory []*policyv1.PodDisruptionBudget
}

// podEvent is one event of a watch. The pod carries the resourceVersion of the event,
// also when it is gone.
type podEvent struct {
	version int
	pod     *corev1.Pod
	gone    bool
}

type ruleEvent struct {
	rule *appsv1alpha1.PodTransitionRule
	gone bool
}

// newServer returns an empty server. No two servers give out the same UID: the policy
// engine, which they share, remembers pods by it.
func newServer(number int) *server {
	return &server{
		version: 100, uids: number * 10000, pods: map[string]*corev1.Pod{}, rules: map[string]*appsv1alpha1.PodTransitionRule{},
		budgets: map[string]*policyv1.PodDisruptionBudget{},
	}
}

func (s *server) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

func (s *server) newUID(name string) types.UID {
	s.uids++
	return types.UID(fmt.Sprintf("%s-%d", name, s.uids))
}

// putPod stores a pod, in place of any pod of its name.
func (s *server) putPod(pod *corev1.Pod) *corev1.Pod {
	stored := pod.DeepCopy()
	stored.ResourceVersion = s.next()
	s.pods[stored.Name] = stored
	s.podHistory = append(s.podHistory, podEvent{version: s.version, pod: stored})
	return stored
}

func (s *server) deletePod(name string) {
	last := s.pods[name].DeepCopy()
	last.ResourceVersion = s.next()
	delete(s.pods, name)
	s.podHistory = append(s.podHistory, podEvent{version: s.version, pod: last, gone: true})
}

// writePod is a patch of a pod's status under uid and resourceVersion.
func (s *server) writePod(decided *corev1.Pod, change lifecycle.Change, now time.Time) (*corev1.Pod, error) {
	stored, ok := s.pods[decided.Name]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, decided.Name)
	case stored.UID != decided.UID || stored.ResourceVersion != decided.ResourceVersion:
		return nil, errConflict()
	}
	next := stored.DeepCopy()
	next.Labels = change.Apply(next.Labels)
	if change.Gate != nil {
		sim.SetCondition(next, appsv1alpha1.ServiceReadyGate, *change.Gate, "", now)
	}
	return s.putPod(next), nil
}

// putRule stores a rule. An edit of the spec is a new generation; the status stays.
func (s *server) putRule(name string, spec appsv1alpha1.PodTransitionRuleSpec) {
	rule := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: simNamespace, Name: name, UID: s.newUID(name)}}
	if stored, ok := s.rules[name]; ok {
		rule = stored.DeepCopy()
	}
	rule.Spec = spec
	rule.Generation++
	s.storeRule(rule)
}

func (s *server) storeRule(rule *appsv1alpha1.PodTransitionRule) {
	rule.ResourceVersion = s.next()
	s.rules[rule.Name] = rule
	s.ruleHistory = append(s.ruleHistory, ruleEvent{rule: rule})
}

func (s *server) deleteRule(name string) {
	last := s.rules[name].DeepCopy()
	last.ResourceVersion = s.next()
	delete(s.rules, name)
	s.ruleHistory = append(s.ruleHistory, ruleEvent{rule: last, gone: true})
}

// writeStatus is an update of the status subresource under the resourceVersion.
func (s *server) writeStatus(object *appsv1alpha1.PodTransitionRule) (*appsv1alpha1.PodTransitionRule, error) {
	stored, ok := s.rules[object.Name]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "podtransitionrules"}, object.Name)
	case stored.UID != object.UID || stored.ResourceVersion != object.ResourceVersion:
		return nil, errConflict()
	}
	next := stored.DeepCopy()
	object.Status.DeepCopyInto(&next.Status)
	s.storeRule(next)
	return next.DeepCopy(), nil
}

// putBudget stores a PodDisruptionBudget, in place of any PodDisruptionBudget of its name.
func (s *server) putBudget(budget *policyv1.PodDisruptionBudget) {
	stored := budget.DeepCopy()
	stored.ResourceVersion = s.next()
	s.budgets[stored.Name] = stored
	s.budgetHistory = append(s.budgetHistory, stored)
}

// writeBudget patches a PodDisruptionBudget's permit record under uid and resourceVersion.
func (s *server) writeBudget(read podindex.DisruptionBudget, record *appsv1alpha1.PermitRecord) (podindex.DisruptionBudget, error) {
	stored, ok := s.budgets[read.Name]
	switch {
	case !ok:
		return podindex.DisruptionBudget{}, apierrors.NewNotFound(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, read.Name)
	case stored.UID != read.UID || stored.ResourceVersion != read.ResourceVersion:
		return podindex.DisruptionBudget{}, errConflict()
	}
	next := stored.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, appsv1alpha1.PermitsAnnotationKey, permit.Encode(record))
	s.putBudget(next)
	return podindex.NewDisruptionBudget(s.budgets[read.Name]), nil
}

func errConflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "object", fmt.Errorf("the object has been modified"))
}

// podsAt are the pods after the first events of the history, by UID.
func (s *server) podsAt(events int) map[types.UID]*corev1.Pod {
	pods := map[types.UID]*corev1.Pod{}
	for _, event := range s.podHistory[:events] {
		pods[event.pod.UID] = event.pod
		if event.gone {
			delete(pods, event.pod.UID)
		}
	}
	return pods
}

// eventsUpTo is how many events of pods there were up to a resourceVersion.
func (s *server) eventsUpTo(version int) int {
	events := 0
	for events < len(s.podHistory) && s.podHistory[events].version <= version {
		events++
	}
	return events
}
