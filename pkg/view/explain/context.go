package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// keptScaleDown describes the ReplicaSet's scale-down for which a pod is to be deleted.
func (x *explainer) keptScaleDown() {
	deletes := slices.ContainsFunc(x.state.Operations, func(o podstate.Operation) bool { return o.ID == appsv1alpha1.PodDeleteID })
	for _, set := range x.s.ReplicaSets {
		if !deletes || !ownsPod(set, x) {
			continue
		}
		if note, kept := keptScaleDown(x.s, set); kept {
			x.note(note)
		}
	}
}

func ownsPod(set *appsv1.ReplicaSet, x *explainer) bool {
	return slices.ContainsFunc(x.pod.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == set.UID })
}

// keptScaleDown returns the note on a ReplicaSet whose scale-down waits: admission keeps its number in a
// rollout, and its pods otherwise.
func keptScaleDown(s *clusterstate.Snapshot, set *appsv1.ReplicaSet) (Reason, bool) {
	workload := workloadFor(s, set)
	replicas, target, pods := replicasetscale.Replicas(set.Spec.Replicas), workload.Target(set), int(set.Status.Replicas)
	note := Reason{Situation: ScaleDownKept}
	switch {
	case !replicasetscale.IsControlled(set) || pods <= target:
		return Reason{}, false
	case target < replicas:
		note.Message = fmt.Sprintf("ReplicaSet %s is to be lowered to %d in a rollout, and stays at %d until %d of its pods may be deleted",
			set.Name, target, replicas, replicas-target)
	default:
		note.Message = fmt.Sprintf("ReplicaSet %s was lowered to %d, and has %d pods until %d of them may be deleted",
			set.Name, replicas, pods, pods-replicas)
	}
	if isAbandoned(set, workload) {
		note.Message += ". It has a revision that was abandoned: its Deployment was rolled back"
		for _, object := range s.Rules {
			if selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector); err == nil && selector.Matches(labels.Set(set.Spec.Template.Labels)) {
				edit := kubectl(set.Namespace, "edit podtransitionrule %s", object.Name)
				note.Commands = append(note.Commands, Command{"let pods of abandoned revisions pass its rules: exemptRevisions: Abandoned", edit})
			}
		}
	}
	if command := withdrawal(set, workload, target < replicas); command != "" {
		note.Commands = []Command{{"withdraw it", command}}
	}
	return note, true
}

// workloadFor returns the Deployment of a ReplicaSet with its ReplicaSets, as far as the snapshot has it.
func workloadFor(s *clusterstate.Snapshot, set *appsv1.ReplicaSet) replicasetscale.Workload {
	deployment := s.Deployment(deploymentName(set))
	if deployment == nil {
		return replicasetscale.Workload{}
	}
	return replicasetscale.Workload{Deployment: deployment, Sets: s.ReplicaSetsOwnedBy(deployment.UID)}
}

// withdrawal returns the command that withdraws a scale-down; empty where no command is known to restore what was before:
//   - for the only ReplicaSet of the strategy Recreate, which has no other revision yet,
//   - for a revision that was abandoned: to undo its rollback is to roll it out again,
//   - for a paused Deployment, which kubectl does not roll back,
//   - for a Deployment that was scaled in during a rollout, where the number before is that of no ReplicaSet, or that wants the pods again.
func withdrawal(set *appsv1.ReplicaSet, workload replicasetscale.Workload, inRollout bool) string {
	deployment := workload.Deployment
	if deployment == nil {
		return kubectl(set.Namespace, "scale replicaset %s --replicas=%d", set.Name, set.Status.Replicas)
	}
	others := slices.ContainsFunc(workload.Sets, func(other *appsv1.ReplicaSet) bool { return other.UID != set.UID && other.Status.Replicas > 0 })
	replaced := inRollout || replicasetscale.Replicas(set.Spec.Replicas) == 0 && replicasetscale.Replicas(deployment.Spec.Replicas) > 0
	switch revision := set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey]; {
	case !replaced && (others || !replicasetscale.IsNewest(set, deployment) || replicasetscale.Replicas(deployment.Spec.Replicas) >= int(set.Status.Replicas)):
		return ""
	case !replaced:
		return kubectl(set.Namespace, "scale deployment %s --replicas=%d", deployment.Name, set.Status.Replicas)
	case deployment.Spec.Paused || revision == "" || replicasetscale.IsNewest(set, deployment) || isAbandoned(set, workload):
		return ""
	default:
		return kubectl(set.Namespace, "rollout undo deployment %s --to-revision=%s", deployment.Name, revision)
	}
}

// isAbandoned reports whether a ReplicaSet has a revision that was abandoned, as exemptRevisions has it: an older ReplicaSet has the
// newest revision, or still has pods.
func isAbandoned(set *appsv1.ReplicaSet, workload replicasetscale.Workload) bool {
	deployment := workload.Deployment
	if deployment == nil || replicasetscale.IsNewest(set, deployment) {
		return false
	}
	return slices.ContainsFunc(workload.Sets, func(other *appsv1.ReplicaSet) bool {
		return (replicasetscale.Replicas(other.Spec.Replicas) > 0 || replicasetscale.IsNewest(other, deployment)) &&
			other.CreationTimestamp.Before(&set.CreationTimestamp)
	})
}

// deploymentName returns the name of a ReplicaSet's Deployment; empty without a Deployment.
func deploymentName(set *appsv1.ReplicaSet) string {
	for _, owner := range set.OwnerReferences {
		if owner.Kind == "Deployment" && owner.Controller != nil && *owner.Controller {
			return owner.Name
		}
	}
	return ""
}

// exceptions describes why the pod passes rules, or will.
func (x *explainer) exceptions() {
	preCheck := len(x.state.In(podstate.PhasePreCheck)) > 0
	if len(x.state.Operations) == 0 {
		x.holdExpired()
	}
	switch {
	case len(x.state.Operations) == 0:
		return
	case x.state.BreakGlass != "":
		x.note(Reason{
			Situation: BreakGlass, Message: "break-glass of the pod lets it pass every PreCheck rule: " + x.state.BreakGlass,
			Commands: []Command{{"end it", x.kubectl("annotate pod %s %s-", x.pod.Name, appsv1alpha1.BreakGlassAnnotationKey)}},
		})
	case x.s.BreakGlass != "":
		x.note(everywhere("of the namespace: "+x.s.BreakGlass, x.pod.Namespace))
	case x.s.ClusterBreakGlass != "":
		x.note(everywhere("of the cluster: "+x.s.ClusterBreakGlass, x.s.Manager.Namespace))
	}
	if len(x.state.SkipRules) > 0 {
		x.note(Reason{
			Situation: SkipsRules, Message: "the pod skips the rules " + text.Line(strings.Join(x.state.SkipRules, ", "), rule.MaxMessageBytes),
			Commands: []Command{{"end that", x.kubectl("annotate pod %s %s-", x.pod.Name, appsv1alpha1.SkipRulesAnnotationKey)}},
		})
	}
	if event := lastEvent(x.s, x.pod.UID, "Exempt"); event != nil {
		x.note(Reason{Situation: ExemptRevision, Message: event.Message, Since: timeOrNil(eventTime(event))})
	}
	if preCheck {
		x.holdBounded()
		x.noRule()
	}
}

func everywhere(text, namespace string) Reason {
	return Reason{
		Situation: ClusterGlass, Message: "break-glass " + text + ": every pod passes every PreCheck rule",
		Commands: []Command{{"end it", "kubectl annotate namespace " + namespace + " " + appsv1alpha1.BreakGlassAnnotationKey + "-"}},
	}
}

// noRule notes that no rule selects the pod.
func (x *explainer) noRule() {
	if len(x.s.RulesFor(x.pod)) == 0 && !x.s.CannotRead("podtransitionrules") {
		x.note(Reason{Situation: NoRuleSelects, Message: "no PodTransitionRule selects the pod: it passes once the manager sees it"})
	}
}

// holdBounded notes when a rule stops to hold back a deferred delete.
func (x *explainer) holdBounded() {
	if x.state.Delete == nil {
		return
	}
	for _, ruleset := range x.s.RulesFor(x.pod) {
		if ruleset.Spec.MaxHold == nil {
			continue
		}
		then := "the deletion is cancelled"
		if ruleset.Spec.OnMaxHold == appsv1alpha1.HoldRelease {
			then = "the pod passes its rules"
		}
		x.note(Reason{
			Situation: HoldBounded,
			Message:   fmt.Sprintf("PodTransitionRule %s holds it for %s at most (maxHold); then %s", ruleset.Name, ruleset.Spec.MaxHold.Duration, then),
		})
	}
}

// shownFor is the time for which an ended hold is shown.
const shownFor = 15 * time.Minute

// holdExpired notes that a hold has ended with a cancelled operation.
func (x *explainer) holdExpired() {
	event := lastEvent(x.s, x.pod.UID, "HoldExpired")
	if event == nil || x.now.Sub(eventTime(event)) > shownFor {
		return
	}
	x.note(Reason{Situation: HoldExpired, Message: event.Message, Since: timeOrNil(eventTime(event))})
}

// wouldWithhold notes the rules that would withhold the pod if they were enforced.
func (x *explainer) wouldWithhold() {
	for _, ruleset := range x.s.RulesFor(x.pod) {
		for _, status := range ruleset.Status.Rules {
			if status.Enforcement == appsv1alpha1.EnforcementEnforce || status.Enforcement == "" {
				continue
			}
			x.wouldWithholdBy(ruleset.Name, status)
		}
	}
}

func (x *explainer) wouldWithholdBy(ruleset string, status appsv1alpha1.RuleStatus) {
	for _, rejection := range status.LastRejections {
		if rejection.Pod != x.pod.Name || !slices.ContainsFunc(x.state.Operations, func(o podstate.Operation) bool { return o.ID == rejection.ID }) {
			continue
		}
		x.note(Reason{
			Situation: WouldWithhold, Rule: ruleset + "/" + status.Name, Code: rejection.Reason, Since: timeOrNil(rejection.Time.Time),
			Message: fmt.Sprintf("rule %s/%s would withhold it if it were enforced (now %s): %s (%s)",
				ruleset, status.Name, status.Enforcement, rejection.Message, rule.Code(rejection.Reason)),
		})
		return
	}
}
