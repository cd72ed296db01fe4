package explain_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// world is a namespace in which remedies are applied. The manager and the kubelets act in it by settle; adapters, operation
// controllers and controllers of workloads are outside actors that do not.
type world struct {
	*clusterstate.Snapshot

	// planted are codes by rule name, where no verdict is computed.
	planted map[string]rule.Code

	// later is for how long nothing has changed when commands are run.
	later time.Duration

	// bad are ReplicaSets of revisions that were withdrawn.
	bad map[string]bool
}

// kubeletAway is an annotation of pods whose kubelet does not act.
const kubeletAway = "test/kubelet-away"

func copies[T interface{ DeepCopy() T }](objects []T) []T {
	copied := make([]T, len(objects))
	for i, object := range objects {
		copied[i] = object.DeepCopy()
	}
	return copied
}

func (w world) copy() world {
	s := *w.Snapshot
	s.Pods, s.Deployments, s.ReplicaSets = copies(s.Pods), copies(s.Deployments), copies(s.ReplicaSets)
	s.StatefulSets, s.DaemonSets, s.Rules = copies(s.StatefulSets), copies(s.DaemonSets), copies(s.Rules)
	s.Budgets, s.Services = copies(s.Budgets), copies(s.Services)
	w.Snapshot = &s
	return w
}

// settle lets the manager and the kubelets act until nothing changes.
func (w world) settle() {
	for range 12 {
		permits := w.evaluate()
		changed := false
		for i, pod := range w.Pods {
			facts := w.State(pod).Facts
			facts.SteadyFor = time.Hour
			change := lifecycle.Advance(facts, permits[pod.Name], lifecycle.Options{}, now())
			apply(pod, change)
			changed = changed || !change.IsEmpty() || kubelet(pod)
			w.Pods[i] = pod
		}
		if !changed {
			return
		}
	}
}

// apply writes a change of the lifecycle controller.
func apply(pod *corev1.Pod, change lifecycle.Change) {
	pod.Labels = change.Apply(pod.Labels)
	if change.Gate != nil {
		setCondition(pod, appsv1alpha1.ServiceReadyGate, *change.Gate, "")
	}
	if change.GateReason != nil {
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == appsv1alpha1.ServiceReadyGate {
				pod.Status.Conditions[i].Reason = *change.GateReason
			}
		}
	}
	if len(change.Forget) > 0 {
		expected, _ := lifecycle.ParseAvailableConditions(pod.Annotations)
		for _, employer := range change.Forget {
			delete(expected.ExpectedFinalizers, employer)
		}
		text, _ := json.Marshal(expected) //nolint:errchkjson // A map of strings.
		pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = string(text)
	}
}

// kubelet follows the readiness gates, and reports whether that changed the pod.
func kubelet(pod *corev1.Pod) bool {
	if _, away := pod.Annotations[kubeletAway]; away || pod.DeletionTimestamp != nil {
		return false
	}
	status := map[corev1.PodConditionType]bool{}
	for _, condition := range pod.Status.Conditions {
		status[condition.Type] = condition.Status == corev1.ConditionTrue
	}
	ready, reason := status[corev1.ContainersReady], "ContainersNotReady"
	for _, gate := range pod.Spec.ReadinessGates {
		if ready && !status[gate.ConditionType] {
			ready, reason = false, "ReadinessGatesNotReady"
		}
	}
	if ready == status[corev1.PodReady] {
		return false
	}
	if ready {
		reason = ""
	}
	setCondition(pod, corev1.PodReady, ready, reason)
	return true
}

func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, on bool, reason string) {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(now())}
	if on {
		condition.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind }), condition)
}

// evaluate writes the rule status, and returns permits by pod name.
func (w world) evaluate() map[string]lifecycle.Permits {
	for _, object := range w.Rules {
		object.Status.Blocked = nil
	}
	permits := map[string]lifecycle.Permits{}
	for _, pod := range w.Pods {
		for _, waiting := range lifecycle.WaitingIDs(w.State(pod).Facts) {
			if w.withholds(pod, waiting, permits) {
				continue
			}
			permit := permits[pod.Name]
			attempts := map[string]string{waiting.ID: waiting.Attempt}
			if waiting.Stage == appsv1alpha1.StagePreCheck {
				permit.PreCheck = attempts
			} else {
				permit.PostCheck = attempts
			}
			permits[pod.Name] = permit
		}
	}
	return permits
}

// withholds reports whether rules withhold an id, and reports them in their status.
func (w world) withholds(pod *corev1.Pod, waiting lifecycle.Waiting, permits map[string]lifecycle.Permits) bool {
	if waiting.Stage == appsv1alpha1.StagePreCheck && podstate.BreakGlass(pod.Annotations)+w.BreakGlass+w.ClusterBreakGlass != "" {
		return false
	}
	withheld := false
	skipped := podstate.SkipRules(pod.Annotations)
	for _, object := range w.RulesFor(pod) {
		for _, spec := range object.Spec.Rules {
			stage := cmp.Or(spec.Stage, appsv1alpha1.StagePreCheck)
			if spec.Disabled || stage != waiting.Stage || slices.Contains(skipped, spec.Name) || !isFiltered(spec, pod) || w.isExempt(spec, pod) {
				continue
			}
			entry := appsv1alpha1.BlockedPod{
				Name: pod.Name, Stage: stage, ID: waiting.ID, Rule: object.Name + "/" + spec.Name, Message: "the message",
				Reason: string(w.verdict(object, spec, pod, permits)),
			}
			if entry.Reason != "" {
				withheld = true
				object.Status.Blocked = append(object.Status.Blocked, entry)
			}
		}
	}
	for _, budget := range w.BudgetsFor(pod) {
		name := string(rule.KindDisruptionBudget) + "/" + budget.Name
		if waiting.Stage != appsv1alpha1.StagePreCheck || slices.Contains(skipped, name) || w.available(budget.Spec.Selector, permits) > budget.Spec.MinAvailable.IntValue() {
			continue
		}
		withheld = true
		for _, object := range w.RulesFor(pod)[:min(1, len(w.RulesFor(pod)))] {
			object.Status.Blocked = append(object.Status.Blocked, appsv1alpha1.BlockedPod{
				Name: pod.Name, Stage: appsv1alpha1.StagePreCheck, ID: waiting.ID, Rule: name, Message: "the message", Reason: string(rule.CodeNoRoom),
			})
		}
	}
	return withheld
}

// isExempt reports whether the pod has an abandoned revision that the rule exempts.
func (w world) isExempt(spec appsv1alpha1.TransitionRule, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return spec.ExemptRevisions == appsv1alpha1.ExemptAbandoned && owner != nil && w.bad[owner.Name]
}

func isFiltered(spec appsv1alpha1.TransitionRule, pod *corev1.Pod) bool {
	return spec.Filter == nil || matches(spec.Filter.LabelSelector, pod.Labels)
}

func matches(selector *metav1.LabelSelector, of map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(of))
}

// verdict returns the code of a rule that withholds a pod; empty if it does not.
func (w world) verdict(
	object *appsv1alpha1.PodTransitionRule, spec appsv1alpha1.TransitionRule, pod *corev1.Pod, permits map[string]lifecycle.Permits,
) rule.Code {
	_, lifted := object.Annotations[appsv1alpha1.LiftQuarantineAnnotationKey]
	switch {
	case spec.LabelCheck != nil && !matches(spec.LabelCheck.Requires, pod.Labels):
		return rule.CodeLabelMismatch
	case spec.AvailablePolicy != nil && podstate.Available(pod):
		selected := slices.DeleteFunc(w.Selected(object.Spec.Selector), podstate.Finished)
		if len(selected)-w.available(object.Spec.Selector, permits) >= spec.AvailablePolicy.MaxUnavailableValue.IntValue() {
			return rule.CodeNoRoom
		}
	case w.planted[spec.Name] != "" && (w.planted[spec.Name] != rule.CodePolicyTooExpensive || !lifted):
		return w.planted[spec.Name]
	}
	return ""
}

// available returns how many selected pods are available and have no permit.
func (w world) available(selector *metav1.LabelSelector, permits map[string]lifecycle.Permits) int {
	count := 0
	for _, pod := range w.Selected(selector) {
		if podstate.Available(pod) && len(permits[pod.Name].PreCheck) == 0 {
			count++
		}
	}
	return count
}

// selectors returns each label selector of the world by a name for reports.
func (w world) selectors() map[string]*metav1.LabelSelector {
	all := map[string]*metav1.LabelSelector{"the webhooks": {MatchLabels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}}}
	for _, set := range w.ReplicaSets {
		all["ReplicaSet "+set.Name] = set.Spec.Selector
	}
	for _, set := range w.StatefulSets {
		all["StatefulSet "+set.Name] = set.Spec.Selector
	}
	for _, set := range w.DaemonSets {
		all["DaemonSet "+set.Name] = set.Spec.Selector
	}
	for _, service := range w.Services {
		all["Service "+service.Name] = &metav1.LabelSelector{MatchLabels: service.Spec.Selector}
	}
	for _, budget := range w.Budgets {
		all["PodDisruptionBudget "+budget.Name] = budget.Spec.Selector
	}
	for _, object := range w.Rules {
		all["PodTransitionRule "+object.Name] = object.Spec.Selector
		for _, spec := range object.Spec.Rules {
			if spec.Filter != nil {
				all[fmt.Sprintf("the filter of %s/%s", object.Name, spec.Name)] = spec.Filter.LabelSelector
			}
		}
	}
	return all
}

// labelChecks returns the label selectors that rules require, by a name for reports.
func (w world) labelChecks(pod *corev1.Pod) map[string]*metav1.LabelSelector {
	all := map[string]*metav1.LabelSelector{}
	for _, object := range w.RulesFor(pod) {
		for _, spec := range object.Spec.Rules {
			if spec.LabelCheck != nil && !spec.Disabled {
				all[object.Name+"/"+spec.Name] = spec.LabelCheck.Requires
			}
		}
	}
	return all
}

// sorted sorts objects by name, as a Snapshot has them.
func sorted[T metav1.Object](objects []T) []T {
	slices.SortFunc(objects, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

func newBudget(name string, selected map[string]string, least int32) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	budget.Spec.Selector, budget.Spec.MinAvailable = &metav1.LabelSelector{MatchLabels: selected}, new(intstr.FromInt32(least))
	return budget
}

// revisionNumber returns the revision of a Deployment or ReplicaSet.
func revisionNumber(object metav1.Object) (revision int) {
	_, _ = fmt.Sscan(object.GetAnnotations()[appsv1alpha1.DeploymentRevisionAnnotationKey], &revision)
	return revision
}
