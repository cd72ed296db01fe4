package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// remedies returns the commands that help where a rule withholds the pod, the best first.
func (x *explainer) remedies(reason Reason, ruleset string) []Command {
	edit := Command{"edit the rule", x.kubectl("edit podtransitionrule %s", ruleset)}
	look := Command{"see the rule", x.podops("explain ptr/%s", ruleset)}
	spec := x.spec(reason.Rule)
	switch reason.Situation {
	case LabelMismatch:
		return x.labelCommands(spec, edit)
	case NoRoom, WaitsItsTurn:
		if len(reason.InTheWay) > 0 {
			return []Command{{"see why the first pod in the way is not available", x.podops("explain pod/%s", reason.InTheWay[0].Name)}, look}
		}
		return []Command{look}
	case NotApproved, RevisionDenied:
		return append(x.approvalCommands(reason.Situation), look)
	case Quarantined:
		return []Command{
			{"edit the module, so that it needs less", x.policyEdit(spec, ruleset)},
			{"or have it evaluated again", x.kubectl(`annotate podtransitionrule %s --overwrite %s="$(date)"`, ruleset, appsv1alpha1.LiftQuarantineAnnotationKey)},
		}
	case PolicyNotFound:
		return []Command{{"see the policies that there are", "kubectl get podtransitionpolicies"}, edit}
	case NotAllowed, Denied:
		return []Command{
			{"show the input of the rule for the pod", x.podops("eval --pod %s --show-input", x.pod.Name)},
			{"or edit the rule", x.policyEdit(spec, ruleset)},
		}
	case PassesWithSurge:
		return append(x.surgeCommands(reason, ruleset), edit, look)
	case NeverPasses, CompileFailed, TooLarge, BadParameters, Undefined, WrongType, Timeout, EvaluationFailed:
		return []Command{{"edit the rule", x.policyEdit(spec, ruleset)}, look}
	case WebhookFailed, WebhookUnresolvable, WebhookCircuitOpen, WebhookRejected, WebhookProcessing, WebhookPending, WebhookSecret:
		return x.webhookCommands(reason, spec, ruleset)
	case RuleDeleted:
		return []Command{{"wait, or create it again", x.kubectl("get podtransitionrules")}}
	default:
		return []Command{look}
	}
}

// approvalCommands returns the commands with which users decide about the revision that replaces the pod; nil for a pod without a workload.
func (x *explainer) approvalCommands(situation Situation) []Command {
	owner := x.s.Owner(x.pod)
	if x.s.Template(owner) == nil || owner.Kind == "ReplicaSet" {
		return nil
	}
	workload := strings.ToLower(owner.Kind) + "/" + owner.Name
	see := Command{"see what it changes, and who has decided", x.podops("approvals %s", workload)}
	if situation == RevisionDenied {
		return []Command{see, {"or go back to the revision before", x.kubectl("rollout undo %s", workload)}}
	}
	return []Command{see, {"approve it, as a user who did not write it", x.podops("approve %s", workload)}}
}

// surgeCommands returns the command after which the Deployment of the pod starts another pod before this one goes; nil without a Deployment
// that may.
func (x *explainer) surgeCommands(reason Reason, ruleset string) []Command {
	owner := x.s.Owner(x.pod)
	deployment := x.s.Deployment(owner.Name)
	object := x.s.Rule(ruleset)
	if object == nil || owner.Kind != "Deployment" || deployment == nil || !deferreddelete.Surges(deployment) {
		return nil
	}
	at := slices.IndexFunc(object.Spec.Rules, func(entry appsv1alpha1.TransitionRule) bool { return ruleset+"/"+entry.Name == reason.Rule })
	if at < 0 || object.Spec.Rules[at].AvailablePolicy == nil {
		return nil
	}
	return []Command{{"let its Deployment start another pod first", x.kubectl(
		`patch podtransitionrule %s --type=json -p '[{"op":"add","path":"/spec/rules/%d/availablePolicy/surge","value":1}]'`, ruleset, at)}}
}

// policyEdit returns the command that edits the module of a rule.
func (x *explainer) policyEdit(spec *appsv1alpha1.TransitionRule, ruleset string) string {
	if spec != nil && spec.Rego != nil && spec.Rego.PolicyRef != nil {
		return "kubectl edit podtransitionpolicy " + spec.Rego.PolicyRef.Name
	}
	return x.kubectl("edit podtransitionrule %s", ruleset)
}

// webhookCommands returns the commands for a rule that calls a service.
func (x *explainer) webhookCommands(reason Reason, spec *appsv1alpha1.TransitionRule, ruleset string) []Command {
	calls := Command{"see its calls", x.kubectl("get podtransitionrule %s -o jsonpath='{.status.ruleStates}'", ruleset)}
	if spec == nil || spec.Webhook == nil {
		return []Command{calls}
	}
	if secret := spec.Webhook.ClientConfig.SecretRef; secret != nil && reason.Situation == WebhookSecret {
		return []Command{{"see the Secret", x.kubectl("get secret %s", secret.Name)}, calls}
	}
	if reason.Situation == WebhookUnresolvable {
		return []Command{
			{"correct the url, now " + spec.Webhook.ClientConfig.URL, x.kubectl("edit podtransitionrule %s", ruleset)}, calls,
		}
	}
	return []Command{calls, {"the service is " + spec.Webhook.ClientConfig.URL + "; edit the rule", x.kubectl("edit podtransitionrule %s", ruleset)}}
}

// labelCommands returns the command that adds the labels that a rule requires and the pod does not have, and edit, the command that
// edits the rule.
func (x *explainer) labelCommands(spec *appsv1alpha1.TransitionRule, edit Command) []Command {
	if spec == nil || spec.LabelCheck == nil || spec.LabelCheck.Requires == nil {
		return []Command{edit}
	}
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(spec.LabelCheck.Requires.MatchLabels)) {
		if value := spec.LabelCheck.Requires.MatchLabels[key]; x.pod.Labels[key] != value {
			changes = append(changes, key+"="+value)
		}
	}
	for _, requirement := range spec.LabelCheck.Requires.MatchExpressions {
		if change := labelChange(x.pod.Labels, requirement); change != "" {
			changes = append(changes, change)
		}
	}
	changed := applied(x.pod.Labels, changes)
	meets, err := metav1.LabelSelectorAsSelector(spec.LabelCheck.Requires)
	switch {
	case len(changes) == 0 || err != nil || !meets.Matches(changed):
		return []Command{edit}
	case !x.meetsAsBefore(changed):
		edit.Purpose += ": the labels that it requires break another rule"
		return []Command{edit}
	case !x.keepsSelectors(changed):
		edit.Purpose += ": the labels that it requires would take the pod from its owner, a Service, a budget or a rule, or add it to another"
		return []Command{edit}
	}
	return []Command{{"meet the rule, if that is true of the pod", x.kubectl("label pod %s --overwrite %s", x.pod.Name, strings.Join(changes, " "))}, edit}
}

// meetsAsBefore reports whether the pod, with changed labels, meets each labelCheck that it meets before.
func (x *explainer) meetsAsBefore(changed labels.Set) bool {
	for _, object := range x.s.RulesFor(x.pod) {
		for _, spec := range object.Spec.Rules {
			if spec.Disabled || spec.LabelCheck == nil {
				continue
			}
			requires, err := metav1.LabelSelectorAsSelector(spec.LabelCheck.Requires)
			if err == nil && requires.Matches(labels.Set(x.pod.Labels)) && !requires.Matches(changed) {
				return false
			}
		}
	}
	return true
}

// applied returns labels after changes as kubectl label takes them.
func applied(before map[string]string, changes []string) labels.Set {
	changed := maps.Clone(before)
	for _, change := range changes {
		if key, value, sets := strings.Cut(change, "="); sets {
			changed[key] = value
		} else {
			delete(changed, strings.TrimSuffix(change, "-"))
		}
	}
	return changed
}

// keepsSelectors reports whether all selectors in the namespace match the pod after a change to its labels as they do
// before. A pod that its ReplicaSet does not select any more is released, and no controller deletes it then. The control label, and
// the labels by which controllers know revisions and names, stay as they are.
func (x *explainer) keepsSelectors(changed labels.Set) bool {
	own := []string{
		appsv1alpha1.ControlLabelKey, appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey, appsv1.StatefulSetPodNameLabel,
	}
	selectors := x.selectors()
	for _, key := range own {
		selectors = append(selectors, &metav1.LabelSelector{MatchLabels: map[string]string{key: x.pod.Labels[key]}})
	}
	return !slices.ContainsFunc(selectors, func(s *metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && selector.Matches(labels.Set(x.pod.Labels)) != selector.Matches(changed)
	})
}

// selectors returns the selectors in the namespace: those of rules, filters, budgets, Services, and controllers.
func (x *explainer) selectors() []*metav1.LabelSelector {
	var selectors []*metav1.LabelSelector
	for _, object := range x.s.Rules {
		selectors = append(selectors, object.Spec.Selector)
		for _, spec := range object.Spec.Rules {
			if spec.Filter != nil {
				selectors = append(selectors, spec.Filter.LabelSelector)
			}
		}
	}
	for _, budget := range x.s.Budgets {
		selectors = append(selectors, budget.Spec.Selector)
	}
	for _, service := range x.s.Services {
		if len(service.Spec.Selector) > 0 {
			selectors = append(selectors, &metav1.LabelSelector{MatchLabels: service.Spec.Selector})
		}
	}
	for _, set := range x.s.ReplicaSets {
		selectors = append(selectors, set.Spec.Selector)
	}
	for _, set := range x.s.StatefulSets {
		selectors = append(selectors, set.Spec.Selector)
	}
	for _, set := range x.s.DaemonSets {
		selectors = append(selectors, set.Spec.Selector)
	}
	return selectors
}

// labelChange returns the change of a label that meets a requirement; empty if it is met, or if any value may do.
func labelChange(pod map[string]string, requirement metav1.LabelSelectorRequirement) string {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}})
	switch {
	case err != nil || selector.Matches(labels.Set(pod)):
		return ""
	case requirement.Operator == metav1.LabelSelectorOpIn:
		return requirement.Key + "=" + slices.Min(requirement.Values)
	case requirement.Operator == metav1.LabelSelectorOpExists:
		return requirement.Key + "=<value>"
	default:
		return requirement.Key + "-"
	}
}

// letGo returns the commands that let the pod go although rules withhold it, the mildest first. The pod goes on to skip the rules that it
// skips already.
func (x *explainer) letGo() []Command {
	var skipped []string
	for _, reason := range x.reasons {
		if reason.Rule == "" || reason.Stage != string(appsv1alpha1.StagePreCheck) {
			continue
		}
		name := reason.Rule
		if _, after, found := strings.Cut(reason.Rule, "/"); found && !strings.HasPrefix(reason.Kind, "PodDisruptionBudget") {
			name = after
		}
		if !slices.Contains(skipped, name) {
			skipped = append(skipped, name)
		}
	}
	var commands []Command
	waiting := x.state.In(podstate.PhasePreCheck)
	if len(waiting) > 0 {
		commands = append(commands, Command{"cancel the operation", x.undo(waiting[0])})
	}
	if len(skipped) > 0 {
		commands = append(commands,
			Command{"skip these rules only", x.kubectl(`annotate pod %s --overwrite %s='{"skipRules":["%s"]}'`,
				x.pod.Name, appsv1alpha1.SkipRulesAnnotationKey, strings.Join(append(skipped, x.alsoSkipped(skipped)...), `","`))},
			Command{"pass every rule, with the reason", x.kubectl(`annotate pod %s %s="<who, and why>"`, x.pod.Name, appsv1alpha1.BreakGlassAnnotationKey)})
	}
	return commands
}

// alsoSkipped returns the rules that the pod skips beside others, as far as their names are names of rules.
func (x *explainer) alsoSkipped(others []string) []string {
	return slices.DeleteFunc(slices.Clone(x.state.SkipRules), func(name string) bool {
		return slices.Contains(others, name) || strings.ContainsAny(name, `"'\\`)
	})
}

// context adds facts that hold nothing back but help to understand the state.
func (x *explainer) context() {
	x.heldRequest()
	x.keptScaleDown()
	x.exceptions()
	x.wouldWithhold()
}

// unlessRepeated is what happens to the request of a client.
const unlessRepeated = "it passes when it is repeated once the rules permit it, and lapses when it is not repeated"

// heldRequest describes the delete or eviction that the pod waits for.
func (x *explainer) heldRequest() {
	record := x.state.Delete
	waiting := slices.ContainsFunc(x.state.In(podstate.PhasePreCheck), func(o podstate.Operation) bool { return o.ID == appsv1alpha1.PodDeleteID })
	if record == nil || !waiting {
		return
	}
	note := Reason{Situation: DeleteHeld, Message: fmt.Sprintf("%s requested its deletion; %s", cmpUser(record.User), unlessRepeated)}
	switch record.Actor {
	case "Owner":
		note.Message = fmt.Sprintf("the controller of its owner (%s) requested its deletion and was answered with 429", cmpUser(record.User))
	case "Evictor":
		note.Situation = EvictionHeld
		note.Message = fmt.Sprintf("%s requested its eviction; %s", cmpUser(record.User), unlessRepeated)
	case "Label":
		note.Message = fmt.Sprintf("label %s requests its deletion: PodOps deletes the pod once its rules pass", appsv1alpha1.ToDeleteLabelKey)
	}
	note.Commands = []Command{{"cancel it", x.undo(podstate.Operation{ID: appsv1alpha1.PodDeleteID, Type: appsv1alpha1.DeleteOperationType})}}
	x.note(note)
}

func cmpUser(user string) string {
	if user == "" {
		return "a client"
	}
	return user
}
