package evaluation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/text"
)

// SettledFor is the time for which the status of a PodDisruptionBudget must count healthy pods that are not
// controlled before permits rely on them. Until then the status may be older than the pods that this process
// has seen, and the difference may be pods that have become unready since. The disruption controller usually
// follows within a second.
const SettledFor = time.Minute

// disruption is one PodDisruptionBudget in an evaluation.
type disruption struct {
	id   rule.RuleID
	view podindex.DisruptionView

	// healthy is the number of pods that are healthy and neither kept off traffic nor reserved, including
	// pods without the control label.
	healthy int
}

// slots returns how many more pods may become unready; below zero when too few are healthy.
func (d *disruption) slots() int { return d.healthy - d.view.Desired }

// openDisruptions adds the budgets of the PodDisruptionBudgets: each PreCheck request of a pod that they
// select needs a slot, in any lifecycle, because the pod becomes unready for all of them.
func (w *evaluating) openDisruptions(
	snapshot Snapshot, candidates map[string]*permit.Candidate, budgetsOf map[types.UID][]string, now time.Time,
) {
	outside, wait := w.state.countUncontrolled(snapshot.Disruptions, now)
	w.retryIn(wait)
	for _, view := range snapshot.Disruptions {
		d := &disruption{id: view.ID(), view: view, healthy: view.Available - view.Reserved + outside[view.Name]}
		w.disruptions[d.id] = d
		for _, request := range view.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, d.id.String()) {
				budgetsOf[request.Pod.UID] = append(names, d.id.String())
			}
			w.needDisruption(d, request, candidates[request.Key()])
		}
		w.budgets = append(w.budgets, permit.Budget{
			Ruleset: d.id.String(), Disruption: true, Slots: map[string]int{view.Name: d.slots()}, Live: view.Live, Inherited: view.Inherited,
		})
	}
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

// rejected returns why the eviction API would reject the removal now, although slots may be left: its status is not of use, or
// the pod is unready and too few others are healthy. A pod must not go off traffic for a removal that cannot follow: it may
// become ready before.
func (d *disruption) rejected(request rule.Request) (rule.Reason, bool) {
	switch {
	case request.Pod.Ready && d.view.Unknown != "":
		return d.reason(request, rule.CodeBudgetUnknown, d.view.Unknown), true
	case !request.Pod.Ready && request.Evicts && !d.view.EvictsUnready && d.view.Unknown == "" && d.slots() < 0:
		return d.noRoom(request), true
	default:
		return rule.Reason{}, false
	}
}

// noRoom returns why a request gets no slot.
func (d *disruption) noRoom(request rule.Request) rule.Reason {
	message := fmt.Sprintf("%d of %d pods are healthy and in service; PodDisruptionBudget %s requires %d",
		max(0, d.healthy), d.view.Total(), d.view.Name, d.view.Desired)
	switch {
	case d.view.Desired >= d.view.Total():
		message += ", so that it permits no disruption unless there are more pods"
	case d.slots() > 0:
		message += fmt.Sprintf(", and other pods come first for the next %d", d.slots())
	}
	reason := d.reason(request, rule.CodeNoRoom, message)
	reason.Numbers = &rule.Numbers{Needed: 1, Have: max(0, d.slots()), Limit: max(0, d.view.Total()-d.view.Desired)}
	reason.BlockingPods = d.view.Unavailable
	return reason
}

func (d *disruption) reason(request rule.Request, code rule.Code, message string) rule.Reason {
	return rule.Reason{
		Rule: d.id, Kind: rule.KindDisruptionBudget, Stage: request.Stage, Code: code, Since: request.Since,
		Message: text.Cut(message, rule.MaxMessageBytes),
	}
}

// Uncontrolled is how many healthy pods without the control label a PodDisruptionBudget counts: at least
// Settled, and at least rising since a time.
type Uncontrolled struct {
	Settled int
	rising  int
	since   time.Time
}

// countUncontrolled returns how many healthy pods without the control label the PodDisruptionBudgets count,
// by name, and the delay after which a number may rise; 0 if no number can.
func (s *State) countUncontrolled(views []podindex.DisruptionView, now time.Time) (counts map[string]int, wait time.Duration) {
	after := map[string]Uncontrolled{}
	counts = map[string]int{}
	for _, view := range views {
		last := s.uncontrolled[view.Name].After(view.Uncontrolled(), now)
		if last.rising > last.Settled {
			wait = backoff.MinDelay(wait, max(SettledFor-now.Sub(last.since), time.Millisecond))
		}
		if last != (Uncontrolled{}) {
			after[view.Name], counts[view.Name] = last, last.Settled
		}
	}
	s.uncontrolled = after
	return counts, wait
}

// After returns the number after another look: it falls at once, and rises to the least of the numbers that
// were seen for SettledFor.
func (u Uncontrolled) After(seen int, now time.Time) Uncontrolled {
	switch {
	case seen <= u.Settled:
		return Uncontrolled{Settled: seen}
	case u.rising <= u.Settled:
		return Uncontrolled{Settled: u.Settled, rising: seen, since: now}
	}
	u.rising = min(u.rising, seen)
	if now.Sub(u.since) < SettledFor {
		return u
	}
	return Uncontrolled{Settled: u.rising}
}
