package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/surge"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// withheld reports the rules that withhold an operation.
func (x *explainer) withheld(operation podstate.Operation) {
	stage := appsv1alpha1.StagePreCheck
	if operation.Phase == podstate.PhasePostCheck {
		stage = appsv1alpha1.StagePostCheck
	}
	blocked := x.blocked(operation.ID, stage)
	for _, entry := range blocked {
		x.withheldBy(operation, entry)
	}
	if len(blocked) == 0 && !x.s.Manager.Away(x.now) && !x.keptByRollingUpdate(operation) {
		x.notReported(operation, stage)
	}
}

// blocked returns the rules that withhold an id: the status of the PodTransitionRules has the newest numbers
// of their first pods, and the annotations of the pod have the others.
func (x *explainer) blocked(id string, stage appsv1alpha1.TransitionStage) []appsv1alpha1.BlockedPod {
	var all []appsv1alpha1.BlockedPod
	known := map[string]bool{}
	add := func(entry appsv1alpha1.BlockedPod) {
		if !known[entry.Rule] {
			known[entry.Rule] = true
			all = append(all, entry)
		}
	}
	for _, ruleset := range x.s.RulesFor(x.pod) {
		for _, entry := range ruleset.Status.Blocked {
			if entry.Name == x.pod.Name && entry.ID == id && entry.Stage == stage {
				add(entry)
			}
		}
	}
	for _, withheld := range x.state.Withheld {
		if withheld.Stage != stage {
			continue
		}
		name := x.rulesetName(withheld.Ruleset)
		entry := appsv1alpha1.BlockedPod{
			Name: x.pod.Name, Stage: stage, ID: id, Rule: name + "/" + withheld.Rule, Reason: withheld.Code, Message: withheld.Message,
		}
		if spec := x.spec(entry.Rule); spec != nil {
			entry.Kind = string(rule.FindKind(spec))
		}
		add(entry)
	}
	return all
}

// rulesetName returns the PodTransitionRule name at the end of an annotation's key.
func (x *explainer) rulesetName(key string) string {
	for _, ruleset := range x.s.Rules {
		if strings.HasSuffix(appsv1alpha1.DetailAnnotationKey(ruleset.Name), "/"+key) {
			return ruleset.Name
		}
	}
	return key
}

// withheldBy reports one rule.
func (x *explainer) withheldBy(operation podstate.Operation, entry appsv1alpha1.BlockedPod) {
	code := rule.Code(entry.Reason)
	reason := Reason{
		Rule: entry.Rule, Kind: entry.Kind, Code: entry.Reason, Stage: string(entry.Stage),
		Message:   rule.Waits(operation.Describe(), entry.Rule, entry.Message, code),
		Since:     cmp.Or(entry.Since, timeOrNil(operation.Since)),
		Situation: findSituation(code), NextCheck: x.nextCheck(entry),
	}
	if code == rule.CodeNoRoom {
		reason.Message += x.surging()
	}
	if n := entry.Numbers; n != nil {
		reason.Numbers = &Numbers{Needed: n.Needed, Have: n.Have, Limit: n.Limit}
	}
	budget, isBudget := strings.CutPrefix(entry.Rule, string(rule.KindDisruptionBudget)+"/")
	ruleset, _, _ := strings.Cut(entry.Rule, "/")
	switch {
	case code == rule.CodeFrozen:
		reason.Kind, reason.Commands = string(rule.KindFreeze), []Command{{"end the freeze of the cluster", "kubectl podops thaw -A"}}
	case isBudget:
		reason.Kind = string(rule.KindDisruptionBudget)
		if code == rule.CodeNoRoom {
			reason.Situation = DisruptionBudget
			x.addBlockers(&reason, x.budgetSelector(budget), entry.BlockingPods)
		}
		reason.Commands = []Command{{"see the PodDisruptionBudget", x.kubectl("get poddisruptionbudget %s", budget)}}
	default:
		if code == rule.CodeNoRoom {
			reason.Situation = x.roomless(ruleset, entry)
			x.addBlockers(&reason, x.rulesetSelector(ruleset), entry.BlockingPods)
		}
		if code == rule.CodeWebhookFailed {
			reason.Situation = webhookFailure(entry.Message)
		}
		reason.Commands = x.remedies(reason, ruleset)
		if rule.IsOfPod(code) {
			x.goesFirst(&reason, operation)
		}
	}
	x.because(rank(rule.Rank(code)+1), reason)
}

// goesFirst adds how another pod of a StatefulSet can go before the pod.
func (x *explainer) goesFirst(reason *Reason, operation podstate.Operation) {
	controller := metav1.GetControllerOfNoCopy(x.pod)
	if operation.ID != appsv1alpha1.PodDeleteID || controller == nil || controller.Kind != "StatefulSet" {
		return
	}
	set := x.s.StatefulSet(controller.Name)
	if set == nil {
		return
	}
	if other := deferreddelete.MayGoBefore(set, x.pod, x.s.Pods); other != nil {
		reason.Message += ". The controller of StatefulSet " + set.Name + " replaces its pods by ordinal, the highest first, and waits for this pod; " +
			"a lower pod that is deleted is created again with the new revision"
		reason.Commands = append([]Command{{"let a lower pod go first, if the rule permits it", x.podops("delete pod %s", other.Name)}}, reason.Commands...)
	}
}

// findSituation returns the situation of a code.
func findSituation(code rule.Code) Situation {
	known := map[rule.Code]Situation{
		rule.CodeLabelMismatch: LabelMismatch, rule.CodeNoRoom: NoRoom, rule.CodeUndefined: Undefined,
		rule.CodeFrozen: Frozen, rule.CodeNotApproved: NotApproved, rule.CodeRevisionDenied: RevisionDenied,
		rule.CodeEvaluationFailed: EvaluationFailed, rule.CodeCompileFailed: CompileFailed, rule.CodeNotAllowed: NotAllowed,
		rule.CodeDenied: Denied, rule.CodeWrongType: WrongType, rule.CodeTimeout: Timeout, rule.CodePolicyTooExpensive: Quarantined,
		rule.CodeInvalidParameters: BadParameters, rule.CodePolicyNotFound: PolicyNotFound, rule.CodeTooLarge: TooLarge,
		rule.CodeWebhookPending: WebhookPending, rule.CodeWebhookProcessing: WebhookProcessing,
		rule.CodeWebhookRejected: WebhookRejected, rule.CodeWebhookFailed: WebhookFailed, rule.CodeNotReached: NotReached,
		rule.CodeBudgetUnknown: BudgetUnknown, rule.CodeRuleDeleted: RuleDeleted,
	}
	if situation, ok := known[code]; ok {
		return situation
	}
	return NotAllowed // a code of a later version
}

// webhookFailure returns the situation of a failed call, whose message has the class of the failure
// (webhookclient.Class).
func webhookFailure(message string) Situation {
	switch {
	case strings.Contains(message, "(DNS)"):
		return WebhookUnresolvable
	case strings.Contains(message, "(BreakerOpen)"):
		return WebhookCircuitOpen
	case strings.Contains(message, "(Secret)"):
		return WebhookSecret
	default:
		return WebhookFailed
	}
}

// roomless returns why an availablePolicy has no slot for the pod.
func (x *explainer) roomless(ruleset string, entry appsv1alpha1.BlockedPod) Situation {
	object := x.s.Rule(ruleset)
	switch {
	case object != nil && stalledFor(object) == appsv1alpha1.ReasonNeverPasses:
		return NeverPasses
	case object != nil && passesWithSurge(object) && object.Status.Available >= object.Status.Desired:
		return PassesWithSurge
	}
	if entry.Numbers != nil && entry.Numbers.Have > 0 || strings.HasPrefix(entry.Message, "waits its turn") {
		return WaitsItsTurn
	}
	return NoRoom
}

// surging returns that another pod starts in place of the pod, or when that has failed; empty if neither is the case.
func (x *explainer) surging() string {
	record, recorded := surge.Recorded(x.pod)
	switch {
	case surge.Surges(x.pod):
		return ". Deployment " + metav1.GetControllerOfNoCopy(x.pod).Name + " starts another pod, and this one goes once that is available"
	case recorded && record.TimedOut && record.Ended != nil:
		return ". The Deployment has started another pod, which did not become available within its progressDeadlineSeconds, until " +
			record.Ended.UTC().Format(time.RFC3339)
	default:
		return ""
	}
}

// nextCheck returns when a rule is evaluated, or its service called, again.
func (x *explainer) nextCheck(entry appsv1alpha1.BlockedPod) *metav1.Time {
	if entry.NextCheck != nil {
		return entry.NextCheck
	}
	ruleset, name, _ := strings.Cut(entry.Rule, "/")
	object := x.s.Rule(ruleset)
	if object == nil {
		return nil
	}
	for _, state := range object.Status.RuleStates {
		if state.Name != name || state.WebhookStatus == nil {
			continue
		}
		for _, task := range state.WebhookStatus.TaskStates {
			if slices.ContainsFunc(task.Processing, func(pod appsv1alpha1.TaskPod) bool { return pod.UID == x.pod.UID }) {
				return task.NextTime
			}
		}
	}
	return nil
}

const maxInTheWay = 20

// addBlockers adds the pods that take the slots of a limit: the pods in its status, and the selected pods
// that are not available.
func (x *explainer) addBlockers(reason *Reason, selector *metav1.LabelSelector, named []string) {
	for _, pod := range x.s.Selected(selector) {
		if !podstate.Finished(pod) && appsv1alpha1.IsControlled(pod.Labels) && !podstate.Available(pod) && !slices.Contains(named, pod.Name) {
			named = append(named[:len(named):len(named)], pod.Name)
		}
	}
	named = slices.DeleteFunc(slices.Clone(named), func(name string) bool { return name == x.pod.Name })
	slices.Sort(named)
	reason.InTheWayMore = max(0, len(named)-maxInTheWay)
	for _, name := range named[:min(len(named), maxInTheWay)] {
		blocking := PodInTheWay{Name: name, Phase: "Gone"}
		if pod := x.s.Pod(name); pod != nil {
			state := x.s.State(pod)
			blocking.Phase, blocking.Since = string(state.Phase), timeOrNil(state.Since)
		}
		reason.InTheWay = append(reason.InTheWay, blocking)
	}
}

func (x *explainer) rulesetSelector(name string) *metav1.LabelSelector {
	if object := x.s.Rule(name); object != nil {
		return object.Spec.Selector
	}
	return nil
}

func (x *explainer) budgetSelector(name string) *metav1.LabelSelector {
	if budget := x.s.Budget(name); budget != nil {
		return budget.Spec.Selector
	}
	return nil
}

// notReported reports that no rule has reported the pod yet.
func (x *explainer) notReported(operation podstate.Operation, stage appsv1alpha1.TransitionStage) {
	reason := Reason{
		Situation: NotReported, Stage: string(stage), Since: timeOrNil(operation.Since),
		Message: operation.Describe() + " waits, and no rule has reported why yet: rules are evaluated within seconds, " +
			"and name the first 10 pods at once and the others after 10s",
	}
	for _, ruleset := range x.s.RulesFor(x.pod) {
		if len(ruleset.Status.Blocked) >= appsv1alpha1.MaxStatusBlocked {
			first := ruleset.Status.Blocked[0]
			reason.Message = fmt.Sprintf("%s waits behind others of PodTransitionRule %s, the first of which waits for rule %s: %s (%s)",
				operation.Describe(), ruleset.Name, first.Rule, first.Message, first.Reason)
			reason.Rule, reason.Code = first.Rule, first.Reason
			break
		}
	}
	if record := x.state.Delete; record != nil && deferreddelete.Waits(*record) {
		reason.Message += "; once they permit the pod, it goes off traffic when its client repeats the request"
	}
	if !x.s.Manager.Lease && !x.s.CannotRead("leases") {
		reason.Message += "; there is no Lease of a manager in namespace " + x.s.Manager.Namespace + " (--podops-namespace)"
	}
	x.because(rankLater, reason)
}

// spec returns a rule by "<PodTransitionRule>/<rule>"; nil if it does not exist.
func (x *explainer) spec(id string) *appsv1alpha1.TransitionRule {
	ruleset, name, _ := strings.Cut(id, "/")
	return findRule(x.s.Rule(ruleset), name)
}

func findRule(object *appsv1alpha1.PodTransitionRule, name string) *appsv1alpha1.TransitionRule {
	if object == nil {
		return nil
	}
	for i := range object.Spec.Rules {
		if object.Spec.Rules[i].Name == name {
			return &object.Spec.Rules[i]
		}
	}
	return nil
}

// stalledFor returns the reason of a PodTransitionRule's condition Stalled; empty if it is not stalled.
func stalledFor(object *appsv1alpha1.PodTransitionRule) string {
	for _, condition := range object.Status.Conditions {
		if condition.Type == appsv1alpha1.ConditionStalled && condition.Status == metav1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}

// passesWithSurge reports whether a rule permits an available pod only while there are more pods than desired.
func passesWithSurge(object *appsv1alpha1.PodTransitionRule) bool {
	return slices.ContainsFunc(object.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == appsv1alpha1.ConditionStalled && condition.Reason == appsv1alpha1.ReasonPassesWithSurge
	})
}

// lastEvent returns the newest event of a reason about an object; nil without such an event.
func lastEvent(s *clusterstate.Snapshot, uid types.UID, reason string) *corev1.Event {
	for i := len(s.Events) - 1; i >= 0; i-- {
		if s.Events[i].InvolvedObject.UID == uid && s.Events[i].Reason == reason {
			return s.Events[i]
		}
	}
	return nil
}

// eventTime returns when an event was last seen.
func eventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
}
