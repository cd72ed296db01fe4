package rolloutview

import (
	"cmp"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// maxText bounds each text from objects in a view, in bytes.
const maxText = 512

// verdicts are the rules that select pods of a view, and their reasons.
type verdicts struct {
	all       []Rule
	selecting []*appsv1alpha1.PodTransitionRule
	withheld  map[string]*Withheld // the first reason, by name of the pod
}

// collectVerdicts collects rules and reasons. A reason comes from status.blocked, or from the annotation of the
// pod: its numbers are older, and it is there for every pod that has waited for 10 s.
func collectVerdicts(sets []*appsv1alpha1.PodTransitionRule, pods []statePod) verdicts {
	v := verdicts{all: []Rule{}, withheld: map[string]*Withheld{}}
	for _, set := range sets {
		selects := selectedBy(set)
		if slices.ContainsFunc(pods, func(pod statePod) bool { return selects(pod.Pod) }) {
			v.selecting = append(v.selecting, set)
		}
	}
	here := map[string]bool{}
	for _, pod := range pods {
		here[pod.Name] = true
	}
	reasons := map[string]map[string]Withheld{} // rule, pod
	add := func(pod string, reason Withheld) {
		if reasons[reason.Rule] == nil {
			reasons[reason.Rule] = map[string]Withheld{}
		}
		if _, known := reasons[reason.Rule][pod]; known || !here[pod] {
			return
		}
		reasons[reason.Rule][pod] = reason
		if first := v.withheld[pod]; first == nil || byRank(reason, *first) < 0 {
			v.withheld[pod] = &reason
		}
	}
	for _, set := range v.selecting {
		for i := range set.Status.Blocked {
			blocked := &set.Status.Blocked[i]
			add(blocked.Name, Withheld{Rule: blocked.Rule, Reason: blocked.Reason, Message: text.Line(blocked.Message, maxText)})
		}
	}
	for _, pod := range pods {
		for _, reason := range detailed(pod, v.selecting) {
			add(pod.Name, reason)
		}
	}
	for _, set := range v.selecting {
		v.add(set, reasons)
	}
	return v
}

// add appends the rules of a PodTransitionRule.
func (v *verdicts) add(set *appsv1alpha1.PodTransitionRule, reasons map[string]map[string]Withheld) {
	for i := range set.Spec.Rules {
		entry := &set.Spec.Rules[i]
		if entry.Disabled {
			continue
		}
		out := Rule{
			Name: set.Name + "/" + entry.Name, Kind: string(rule.FindKind(entry)), Stage: cmp.Or(entry.Stage, appsv1alpha1.StagePreCheck),
			Enforcement: cmp.Or(entry.Enforcement, appsv1alpha1.EnforcementEnforce), Withholds: len(reasons[set.Name+"/"+entry.Name]),
		}
		first := ""
		for pod, reason := range reasons[out.Name] {
			if first == "" || pod < first {
				first, out.Reason, out.Message = pod, reason.Reason, reason.Message
			}
		}
		v.all = append(v.all, out)
	}
	// PodDisruptionBudgets withhold pods, too, under a name of their own.
	for _, name := range sortedKeys(reasons) {
		if !strings.HasPrefix(name, string(rule.KindDisruptionBudget)+"/") || slices.ContainsFunc(v.all, func(r Rule) bool { return r.Name == name }) {
			continue
		}
		pod := sortedKeys(reasons[name])[0]
		v.all = append(v.all, Rule{
			Name: name, Kind: string(rule.KindDisruptionBudget), Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce,
			Withholds: len(reasons[name]), Reason: reasons[name][pod].Reason, Message: reasons[name][pod].Message,
		})
	}
}

// detailed returns the reasons in the annotations of a pod.
func detailed(pod statePod, sets []*appsv1alpha1.PodTransitionRule) []Withheld {
	var reasons []Withheld
	for _, withheld := range pod.state.Withheld {
		for _, set := range sets {
			if appsv1alpha1.DetailAnnotationKey(set.Name) != appsv1alpha1.DetailAnnotationPrefix+"/"+withheld.Ruleset {
				continue
			}
			reasons = append(reasons, Withheld{
				Rule: set.Name + "/" + text.Line(withheld.Rule, maxText), Reason: text.Line(withheld.Code, maxText),
				Message: text.Line(withheld.Message, maxText),
			})
		}
	}
	return reasons
}

// byRank orders reasons as events and status do.
func byRank(a, b Withheld) int {
	return cmp.Or(cmp.Compare(rule.Rank(rule.Code(a.Reason)), rule.Rank(rule.Code(b.Reason))), cmp.Compare(a.Rule, b.Rule))
}

// listBudgets returns the budgets that apply to pods of a view, of rules first.
func listBudgets(snapshot *clusterstate.Snapshot, sets []*appsv1alpha1.PodTransitionRule, pods []statePod) []Budget {
	budgets := []Budget{}
	for _, set := range sets {
		for i := range set.Spec.Rules {
			entry := &set.Spec.Rules[i]
			if entry.Disabled || entry.AvailablePolicy == nil {
				continue
			}
			// The pods are newer than the status.
			desired, available := int(set.Status.Desired), 0
			for _, pod := range snapshot.Selected(set.Spec.Selector) {
				if podstate.Available(pod) {
					available++
				}
			}
			if limit, ok := availabilityLimit(entry.AvailablePolicy, desired); ok {
				budgets = append(budgets, Budget{Name: set.Name + "/" + entry.Name, Used: max(0, desired-available), Limit: limit})
			}
		}
	}
	for _, budget := range snapshot.Budgets {
		one := &clusterstate.Snapshot{Budgets: []*policyv1.PodDisruptionBudget{budget}}
		if !slices.ContainsFunc(pods, func(pod statePod) bool { return len(one.BudgetsFor(pod.Pod)) > 0 }) {
			continue
		}
		status := budget.Status
		budgets = append(budgets, Budget{
			Name: string(rule.KindDisruptionBudget) + "/" + budget.Name,
			Used: max(0, int(status.ExpectedPods-status.CurrentHealthy)), Limit: max(0, int(status.ExpectedPods-status.DesiredHealthy)),
		})
	}
	return budgets
}

// availabilityLimit returns how many of the desired pods may be unavailable, by the lower of the two bounds.
func availabilityLimit(policy *appsv1alpha1.AvailablePolicy, desired int) (limit int, ok bool) {
	limit = desired
	if most, err := intstr.GetScaledValueFromIntOrPercent(policy.MaxUnavailableValue, desired, false); err == nil && policy.MaxUnavailableValue != nil {
		if policy.MaxUnavailableValue.String() != "0" && policy.MaxUnavailableValue.String() != "0%" {
			most = max(1, most)
		}
		limit, ok = min(limit, most), true
	}
	if least, err := intstr.GetScaledValueFromIntOrPercent(policy.MinAvailableValue, desired, true); err == nil && policy.MinAvailableValue != nil {
		limit, ok = min(limit, max(0, desired-least)), true
	}
	return limit, ok
}
