package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// Workload is a Deployment, ReplicaSet, StatefulSet or DaemonSet.
type Workload interface {
	runtime.Object
	metav1.Object
}

// OfWorkload explains a workload of a snapshot: its own reasons, and the reasons of its pods,
// counted.
func OfWorkload(s *clusterstate.Snapshot, workload Workload, now time.Time) Explanation {
	pods := s.PodsOwnedBy(workload.GetUID())
	e := Explanation{Namespace: workload.GetNamespace(), Name: workload.GetName(), Unreadable: unreadable(s)}
	var own []Reason
	switch w := workload.(type) {
	case *appsv1.Deployment:
		e.Kind, own, e.Notes = "Deployment", rolloutReasons(w), keptBy(s, s.ReplicaSetsOwnedBy(w.UID))
		e.Pods = count(s, pods, replicasetscale.Replicas(w.Spec.Replicas))
	case *appsv1.ReplicaSet:
		e.Kind, e.Notes = "ReplicaSet", keptBy(s, []*appsv1.ReplicaSet{w})
		e.Pods = count(s, pods, replicasetscale.Replicas(w.Spec.Replicas))
	case *appsv1.StatefulSet:
		e.Kind, e.Pods = "StatefulSet", count(s, pods, replicasetscale.Replicas(w.Spec.Replicas))
	case *appsv1.DaemonSet:
		e.Kind, e.Pods = "DaemonSet", count(s, pods, int(w.Status.DesiredNumberScheduled))
	}
	reasons, notes := grouped(s, pods, now)
	isAway := slices.ContainsFunc(reasons, func(r Reason) bool { return r.Situation == ManagerAway })
	template := s.Template(rule.Owner{Kind: e.Kind, Name: e.Name})
	if !isAway && e.Pods.Available < e.Pods.Desired && template != nil && appsv1alpha1.IsControlled(template.Labels) && s.Manager.Away(now) {
		away := managerAway(s.Manager) // no pod of the workload is created without a manager
		away.rank, away.Docs = rankNothingMoves, away.Situation.Anchor()
		own = append(own, away)
	}
	e.Reasons = sorted(append(own, reasons...))
	e.Notes = append(e.Notes, notes...)
	e.Summary = summarize(*e.Pods)
	return e
}

// rolloutReasons returns the reasons that the Deployment controller reports of a rollout.
func rolloutReasons(deployment *appsv1.Deployment) []Reason {
	var reasons []Reason
	add := func(rank rank, reason Reason) {
		reason.rank, reason.Docs = rank, reason.Situation.Anchor()
		reasons = append(reasons, reason)
	}
	if deployment.Spec.Paused {
		add(rankEdit, Reason{Situation: RolloutPaused, Message: "its rollout is paused", Commands: []Command{
			{"resume it", kubectl(deployment.Namespace, "rollout resume deployment %s", deployment.Name)},
		}})
	}
	for _, condition := range deployment.Status.Conditions {
		switch {
		case condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded":
			add(rankLater, Reason{
				Situation: RolloutDeadline, Message: "the rollout has made no progress within progressDeadlineSeconds, and goes on: " + condition.Message,
				Since: timeOrNil(condition.LastTransitionTime.Time),
			})
		case condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue && condition.Reason != failedDelete:
			add(rankDenied, Reason{Situation: RolloutFailure, Message: condition.Message, Since: timeOrNil(condition.LastTransitionTime.Time)})
		}
	}
	return reasons
}

// failedDelete is the reason of the condition ReplicaFailure while a delete is held. The pods say why.
const failedDelete = "FailedDelete"

// keptBy returns the notes on ReplicaSets whose scale-down is kept.
func keptBy(s *clusterstate.Snapshot, sets []*appsv1.ReplicaSet) []Reason {
	var notes []Reason
	for _, set := range sets {
		if note, kept := keptScaleDown(s, set); kept {
			note.Docs = note.Situation.Anchor()
			notes = append(notes, note)
		}
	}
	return notes
}

// isAvailable reports whether a pod counts as available: one that is not under PodOps does once it is Ready.
func isAvailable(pod *corev1.Pod) bool {
	if !appsv1alpha1.IsControlled(pod.Labels) {
		return lifecycle.NewPodFacts(pod).Ready && pod.DeletionTimestamp == nil
	}
	return podstate.Available(pod)
}

// count counts pods.
func count(s *clusterstate.Snapshot, pods []*corev1.Pod, desired int) *Pods {
	counted := &Pods{Desired: int32(desired)}
	for _, pod := range pods {
		if podstate.Finished(pod) {
			continue
		}
		counted.Total++
		if isAvailable(pod) {
			counted.Available++
		}
		switch s.State(pod).Phase {
		case podstate.PhasePreCheck:
			counted.Waiting++
		case podstate.PhasePostCheck:
			counted.Waiting++
			counted.OffTraffic++
		case podstate.PhasePreparing, podstate.PhaseOperating, podstate.PhaseCompleting:
			counted.OffTraffic++
		default:
		}
	}
	return counted
}

func summarize(pods Pods) string {
	text := fmt.Sprintf("%d of %d desired pods are available", pods.Available, pods.Desired)
	if pods.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting for rules", pods.Waiting)
	}
	if pods.OffTraffic > 0 {
		text += fmt.Sprintf(", %d off traffic", pods.OffTraffic)
	}
	return text
}

// maxGroupPods bounds the names of a reason's pods.
const maxGroupPods = 20

// grouped returns the first reasons of pods, each with the pods that have it, and the notes of all
// that are about more than one pod.
func grouped(s *clusterstate.Snapshot, pods []*corev1.Pod, now time.Time) (reasons, notes []Reason) {
	type key struct {
		situation Situation
		rule      string
	}
	groups := map[key]*Reason{}
	shared := map[Situation]bool{}
	for _, pod := range pods {
		explained := Pod(s, pod, now)
		for _, note := range explained.Notes {
			if !shared[note.Situation] && (note.Situation == ClusterGlass || note.Situation == NotControlled || note.Situation == GateMissing) {
				shared[note.Situation] = true
				notes = append(notes, note)
			}
		}
		if len(explained.Reasons) == 0 {
			continue
		}
		first := explained.Reasons[0]
		group, known := groups[key{first.Situation, first.Rule}]
		if !known {
			first.Count = 0
			see := Command{"see the pod", podops(pod.Namespace, "explain pod/%s", pod.Name)}
			if first.Situation != NotApproved && first.Situation != RevisionDenied { // users decide about the workload
				first.Commands = nil
			}
			first.Commands = append(first.Commands, see)
			groups[key{first.Situation, first.Rule}], group = &first, &first
		}
		group.Count++
		if len(group.Pods) < maxGroupPods {
			group.Pods = append(group.Pods, pod.Name)
		}
		if explained.Reasons[0].Since.Before(group.Since) {
			group.Since = explained.Reasons[0].Since
		}
	}
	for _, group := range groups {
		reasons = append(reasons, *group)
	}
	return reasons, notes
}

// sorted orders the reasons of a workload or a rule: by rank, then reasons of more pods first.
func sorted(reasons []Reason) []Reason {
	slices.SortFunc(reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Situation, b.Situation), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	if reasons == nil {
		return []Reason{}
	}
	return reasons
}

// OfRule explains a PodTransitionRule: whether its rules can be evaluated, and why its pods wait.
func OfRule(s *clusterstate.Snapshot, object *appsv1alpha1.PodTransitionRule, now time.Time) Explanation {
	status := object.Status
	e := Explanation{
		Kind: "PodTransitionRule", Namespace: object.Namespace, Name: object.Name, Unreadable: unreadable(s),
		Pods: &Pods{
			Desired: status.Desired, Total: status.Selected, Available: status.Available, Waiting: status.Waiting, OffTraffic: status.OffTraffic,
		},
	}
	reasons := ruleReasons(s, object, now)
	ofPods, notes := grouped(s, slices.DeleteFunc(s.Selected(object.Spec.Selector), func(pod *corev1.Pod) bool {
		return !appsv1alpha1.IsControlled(pod.Labels) || !waitsFor(object, pod)
	}), now)
	e.Reasons, e.Notes, e.Summary = sorted(append(reasons, ofPods...)), notes, summarize(*e.Pods)
	return e
}

// waitsFor reports whether a PodTransitionRule withholds a pod.
func waitsFor(object *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	if slices.ContainsFunc(object.Status.Blocked, func(b appsv1alpha1.BlockedPod) bool { return b.Name == pod.Name }) {
		return true
	}
	key := appsv1alpha1.DetailAnnotationKey(object.Name)
	_, annotated := pod.Annotations[key]
	return annotated
}

// ruleReasons returns why a PodTransitionRule is not evaluated, or holds nothing back.
func ruleReasons(s *clusterstate.Snapshot, object *appsv1alpha1.PodTransitionRule, now time.Time) []Reason {
	var reasons []Reason
	add := func(rank rank, reason Reason) {
		reason.rank, reason.Docs = rank, reason.Situation.Anchor()
		reasons = append(reasons, reason)
	}
	edit := []Command{{"edit it", kubectl(object.Namespace, "edit podtransitionrule %s", object.Name)}}
	if s.Manager.Away(now) {
		add(rankNothingMoves, managerAway(s.Manager))
	}
	if object.Status.ObservedGeneration < object.Generation && !s.Manager.Away(now) {
		add(rankEdit, Reason{Situation: RuleNotSeen, Message: "the manager has not evaluated its newest version yet"})
	}
	for _, condition := range object.Status.Conditions {
		if rank, reason, ok := conditionReason(object, condition, edit); ok {
			reason.Since = timeOrNil(condition.LastTransitionTime.Time)
			add(rank, reason)
		}
	}
	return reasons
}

// conditionReason returns the reason that a condition of a PodTransitionRule reports; false if it
// reports no reason.
func conditionReason(object *appsv1alpha1.PodTransitionRule, condition metav1.Condition, edit []Command) (rank, Reason, bool) {
	reason := Reason{Message: condition.Message}
	rank := rankEdit
	on := condition.Status == metav1.ConditionTrue
	switch kind := condition.Type; {
	case kind == appsv1alpha1.ConditionStalled && on:
		reason.Situation, reason.Code = stalledSituation(condition.Reason), condition.Reason
		reason.Commands = stalledCommands(object, condition.Reason, edit)
	case kind == appsv1alpha1.ConditionReconciling && condition.Reason == appsv1alpha1.ReasonEvaluationFailed:
		reason.Situation, reason.Message, reason.Commands = EvaluationFailed, readyMessage(object), edit
	case kind == appsv1alpha1.ConditionSelecting && !on:
		reason.Situation, reason.Commands = SelectsNothing, edit
	case kind == appsv1alpha1.ConditionGuarded && !on:
		reason.Situation, rank = Unguarded, rankDenied
	case kind == appsv1alpha1.ConditionOwnersCounted && !on:
		reason.Situation, rank = OwnerUnreadable, rankDenied
	default:
		return annotated(condition)
	}
	return rank, reason, true
}

// annotated returns the reason of a condition that an annotation of a namespace causes.
func annotated(condition metav1.Condition) (rank, Reason, bool) {
	reason := Reason{Message: condition.Message}
	switch {
	case condition.Status != metav1.ConditionTrue:
		return rankEdit, reason, false
	case condition.Type == appsv1alpha1.ConditionFrozen:
		reason.Situation, reason.Commands = Frozen, []Command{{"end the freeze of the cluster", "kubectl podops thaw -A"}}
		return rankDenied, reason, true
	case condition.Type == appsv1alpha1.ConditionBreakGlass:
		reason.Situation = ClusterGlass
		return rankLater, reason, true
	default:
		return rankEdit, reason, false
	}
}

func readyMessage(object *appsv1alpha1.PodTransitionRule) string {
	for _, condition := range object.Status.Conditions {
		if condition.Type == appsv1alpha1.ConditionReady {
			return condition.Message
		}
	}
	return ""
}

// stalledSituation returns the situation for a reason of the condition Stalled.
func stalledSituation(reason string) Situation {
	switch reason {
	case appsv1alpha1.ReasonNeverPasses:
		return NeverPasses
	case appsv1alpha1.ReasonNeverFinishes:
		return NeverFinishes
	case appsv1alpha1.ReasonPolicyTooExpensive:
		return Quarantined
	case appsv1alpha1.ReasonPolicyNotFound:
		return PolicyNotFound
	case appsv1alpha1.ReasonInvalidParameters:
		return BadParameters
	case appsv1alpha1.ReasonTooLarge:
		return TooLarge
	default:
		return CompileFailed
	}
}

func stalledCommands(object *appsv1alpha1.PodTransitionRule, reason string, edit []Command) []Command {
	switch reason {
	case appsv1alpha1.ReasonPolicyTooExpensive:
		return append(edit, Command{"or have it evaluated again", kubectl(object.Namespace,
			`annotate podtransitionrule %s --overwrite %s="$(date)"`, object.Name, appsv1alpha1.LiftQuarantineAnnotationKey)})
	case appsv1alpha1.ReasonPolicyNotFound:
		return append([]Command{{"see the policies that there are", "kubectl get podtransitionpolicies"}}, edit...)
	default:
		return edit
	}
}
