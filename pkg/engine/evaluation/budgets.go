package evaluation

import (
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"k8s.io/apimachinery/pkg/types"
)

// openBudgets adds the budgets of all PodTransitionRules, and returns their names by the pods that they
// cover.
func (w *evaluating) openBudgets(snapshot Snapshot) map[types.UID][]string {
	budgetsOf := map[types.UID][]string{}
	for _, view := range snapshot.Rules {
		budget, ok := newBudget(w.Rulesets[view.Object.Name])
		if !ok {
			continue
		}
		w.budgets = append(w.budgets, budget)
		for _, request := range view.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Ruleset) {
				budgetsOf[request.Pod.UID] = append(names, budget.Ruleset)
			}
		}
	}
	return budgetsOf
}

// withPod returns the numbers of available pods that go with the pod of a request, by the budget that counts
// them; nil if none do.
func withPod(views []podindex.RuleView, request rule.Request) map[string]int {
	var with map[string]int
	for _, view := range views {
		pods := view.With[request.Pod.UID]
		if pods == 0 || request.Stage != appsv1alpha1.StagePreCheck {
			continue
		}
		if with == nil {
			with = map[string]int{}
		}
		with[view.Object.Name] = pods
	}
	return with
}

// newBudget returns the budget of a PodTransitionRule with an enforced rule that bounds availability, or
// that depends on other pods. A rule whose capacity is unknown has no slot to give.
func newBudget(ruleset *Ruleset) (permit.Budget, bool) {
	view := ruleset.View
	budget := permit.Budget{
		Ruleset: view.Object.Name, Slots: map[string]int{}, Live: view.Live, Inherited: view.Inherited,
		Owners: view.Owners, Remembered: view.Remembered, Recent: view.Permits,
	}
	for _, eval := range ruleset.Rules {
		switch prepared := eval.prepared; {
		case prepared.budget():
			budget.Slots[prepared.spec.Name] = 0
			if eval.capacity != nil {
				budget.Slots[prepared.spec.Name] = eval.capacity.Slots - eval.capacity.Missing()
			}
		case prepared.dependsOnPods() && prepared.stage == appsv1alpha1.StagePreCheck:
			// A rule that is not enforced counts its verdicts as well.
			budget.Sequential = true
		}
		budget.KeepsRecent = budget.KeepsRecent || eval.prepared.needs().Permits
	}
	return budget, len(budget.Slots) > 0 || budget.Sequential || budget.KeepsRecent
}

// openDisruptions adds the budgets of the PodDisruptionBudgets: each PreCheck request of a pod that they
// select needs a slot, in any lifecycle, because the pod becomes unready for all of them.
func (w *evaluating) openDisruptions(
	snapshot Snapshot, candidates map[string]*permit.Candidate, budgetsOf map[types.UID][]string, now time.Time,
) {
	outside, wait := w.state.countUncontrolled(snapshot.Disruptions, now)
	w.retryIn(wait)
	budgets := budgetsByEviction(snapshot.Disruptions)
	for _, view := range snapshot.Disruptions {
		d := &disruption{id: view.ID(), view: view, healthy: view.Available - view.Reserved + outside[view.Name]}
		w.disruptions[d.id] = d
		for _, request := range view.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, d.id.String()) {
				budgetsOf[request.Pod.UID] = append(names, d.id.String())
			}
			if budgets[request.Key()] > 1 {
				w.withholdFor(w.turn, request, d.reason(request, rule.CodeNoRoom, noEviction))
				continue
			}
			w.needDisruption(d, request, candidates[request.Key()])
		}
		w.budgets = append(w.budgets, permit.Budget{
			Ruleset: d.id.String(), Disruption: true, Slots: map[string]int{view.Name: d.slots()}, Live: view.Live, Inherited: view.Inherited,
		})
	}
}

// noEviction is why an eviction of a pod with several PodDisruptionBudgets gets no permit: its pod would be off traffic in
// vain. The webhook lets such an eviction pass, unless a PodDisruptionBudget is created at that moment.
const noEviction = "the API server evicts no pod that more than one PodDisruptionBudget selects"

// budgetsByEviction returns the number of PodDisruptionBudgets that select the pod of an eviction, by the key of its request.
func budgetsByEviction(views []podindex.DisruptionView) map[string]int {
	counts := map[string]int{}
	for _, view := range views {
		for _, request := range view.Waiting {
			if request.Evicts && request.Stage == appsv1alpha1.StagePreCheck {
				counts[request.Key()]++
			}
		}
	}
	return counts
}

// needDisruption has a request wait for a slot of a PodDisruptionBudget, or for its status.
func (w *evaluating) needDisruption(d *disruption, request rule.Request, candidate *permit.Candidate) {
	if request.Stage != appsv1alpha1.StagePreCheck || slices.Contains(request.Pod.SkipRules, d.id.String()) {
		return
	}
	exception, text := w.exceptions.exceptionFor(nil, request)
	if reason, rejected := d.rejected(request); rejected {
		if exception != "" {
			w.waive(w.turn, request, rule.Waiver{Rule: d.id, Code: reason.Code, Exception: exception, Reason: text})
			return
		}
		w.withholdFor(w.turn, request, reason)
		return
	}
	at, _ := slices.BinarySearchFunc(candidate.Needs, d.id, func(a, b rule.RuleID) int { return strings.Compare(a.String(), b.String()) })
	candidate.Needs = slices.Insert(candidate.Needs, at, d.id)
	waiveNeed(candidate, d.id, exception)
}
