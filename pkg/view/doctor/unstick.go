package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// Step is one change of a Plan.
type Step struct {
	// Change describes the change.
	Change string `json:"change"`

	// Why is the reason for which the pod does not move without it.
	Why string `json:"why"`

	// Lost is the guarantee that the change ends; empty if it ends no guarantee.
	Lost string `json:"lost,omitempty"`
}

// Plan has the changes after which a stuck pod moves again.
type Plan struct {
	Steps []Step `json:"steps"`

	// Labels are set, or removed where the value is nil.
	Labels map[string]*string `json:"labels,omitempty"`

	// Annotations are set, or removed where the value is nil.
	Annotations map[string]*string `json:"annotations,omitempty"`

	// Finalizers are removed.
	Finalizers []string `json:"finalizers,omitempty"`

	// Waits describes the condition that a pod without steps waits for; empty if it does not wait.
	Waits string `json:"waits,omitempty"`
}

// Unstick returns the Plan for a pod at a time. The Snapshot has the Services and PodOperations of the namespace
// of the pod. A pod is stuck when a controller that should change it is gone, or has not done so for longer than
// Options.Long; a pod that waits for a rule is not. Unstick does not modify the pod.
func Unstick(snapshot Snapshot, pod *corev1.Pod, options Options, now time.Time) Plan {
	in := newInspection(snapshot, options, now)
	plan := Plan{Steps: []Step{}, Labels: map[string]*string{}}
	facts := lifecycle.NewPodFacts(pod)
	in.unstickFinalizers(&plan, pod, facts)
	in.unstickExpected(&plan, pod, facts)
	if pod.DeletionTimestamp == nil {
		in.unstickOperations(&plan, pod, facts)
	}
	if len(plan.Steps) == 0 {
		plan.Waits = waits(facts)
	}
	return plan
}

// unstickFinalizers plans the removal of finalizers for which the pod waits without hope.
func (in *inspection) unstickFinalizers(plan *Plan, pod *corev1.Pod, facts lifecycle.PodFacts) {
	orphans := in.orphans(pod)
	for _, finalizer := range orphans {
		plan.Finalizers = append(plan.Finalizers, finalizer)
		plan.Steps = append(plan.Steps, Step{
			Change: "remove finalizer " + finalizer,
			Why:    "its controller no longer exists: no Service of the namespace has it, and no employer that exists expects it",
		})
	}
	since, waits := waitsForOff(pod, facts)
	retired := in.retired(pod)
	for _, finalizer := range pod.Finalizers {
		isRetired := slices.Contains(retired, finalizer)
		isLate := waits && in.now.Sub(since) >= in.long
		if !lifecycle.IsProtectionFinalizer(finalizer) || slices.Contains(orphans, finalizer) || !isRetired && !isLate {
			continue
		}
		why := fmt.Sprintf("its controller has not confirmed for %s that traffic is off", age(in.now, since))
		if isRetired {
			why = in.retiredText(pod, finalizer)
		}
		plan.Finalizers = append(plan.Finalizers, finalizer)
		plan.Steps = append(plan.Steps, Step{
			Change: "remove finalizer " + finalizer, Why: why,
			Lost: "the load balancer may still send requests to the pod, and they fail when it is operated on",
		})
	}
}

// unstickExpected plans to drop Services that an adapter has left from the finalizers that a new pod expects.
func (in *inspection) unstickExpected(plan *Plan, pod *corev1.Pod, facts lifecycle.PodFacts) {
	pending, ok := lifecycle.FindPending(facts)
	if !ok || pending.Reason != appsv1alpha1.ReasonCompleting || in.now.Sub(pending.Since) < retiredAfter {
		return
	}
	left := maps.Clone(facts.Expected)
	for _, employer := range slices.Sorted(maps.Keys(facts.Expected)) {
		name, isService := podstate.ParseEmployer(employer)
		service := in.services[name]
		if !isService || service == nil || isAdapted(service) || !slices.Contains(pending.Finalizers, facts.Expected[employer]) {
			continue
		}
		delete(left, employer)
		plan.Steps = append(plan.Steps, Step{
			Change: fmt.Sprintf("remove %s from annotation %s", employer, appsv1alpha1.AvailableConditionsAnnotationKey),
			Why:    in.retiredText(pod, facts.Expected[employer]),
			Lost:   "the pod serves without waiting for this load balancer, which may not send requests to it",
		})
	}
	switch text, err := json.Marshal(appsv1alpha1.AvailableConditions{ExpectedFinalizers: left}); {
	case err != nil || len(left) == len(facts.Expected): // a map of strings is always encoded
	case len(left) == 0:
		plan.Annotations = map[string]*string{appsv1alpha1.AvailableConditionsAnnotationKey: nil}
	default:
		plan.Annotations = map[string]*string{appsv1alpha1.AvailableConditionsAnnotationKey: new(string(text))}
	}
}

// unstickOperations plans the end of operations that no controller ends.
func (in *inspection) unstickOperations(plan *Plan, pod *corev1.Pod, facts lifecycle.PodFacts) {
	untyped := lifecycle.UntypedIDs(facts)
	for _, id := range untyped {
		plan.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+id] = nil
		plan.Steps = append(plan.Steps, Step{
			Change: "remove label " + appsv1alpha1.OperatingLabelPrefix + "/" + id,
			Why:    "the operation has no type, so that it never begins",
		})
	}
	undo := func(id, why, lost string) {
		kind := pod.Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id]
		key := appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + id
		if _, planned := plan.Labels[key]; planned || slices.Contains(untyped, id) {
			return
		}
		plan.Labels[key] = &kind
		plan.Steps = append(plan.Steps, Step{Change: fmt.Sprintf("cancel the %s by label %s", lifecycle.DescribeOperation(kind, id), key), Why: why, Lost: lost})
	}
	for _, id := range in.abandoned(pod) {
		undo(id, "its request does not exist any more: no controller finishes or cancels it", "")
	}
	for key, value := range pod.Labels {
		id, operates := strings.CutPrefix(key, appsv1alpha1.OperateLabelPrefix+"/")
		at, isTime := lifecycle.ParseTime(value)
		if !operates || !isTime || in.now.Sub(at) < in.long {
			continue
		}
		undo(id, fmt.Sprintf("its controller has neither finished nor cancelled it for %s, and the pod is off traffic", age(in.now, at)),
			"the pod serves again as soon as it is ready; if the controller still operates on it, requests fail")
	}
	slices.SortFunc(plan.Steps, func(a, b Step) int { return strings.Compare(a.Change, b.Change) })
}

// waits returns the condition that a pod waits for that is not stuck.
func waits(facts lifecycle.PodFacts) string {
	for _, waiting := range lifecycle.WaitingIDs(facts) {
		return fmt.Sprintf("it waits for %s rules (%s)", waiting.Stage, lifecycle.DescribeOperation(waiting.Type, waiting.ID))
	}
	if pending, ok := lifecycle.FindPending(facts); ok {
		return "it " + pending.Text
	}
	if operations := lifecycle.Operations(facts); len(operations) > 0 {
		return "it is operated on: " + strings.Join(operations, ", ")
	}
	return ""
}
