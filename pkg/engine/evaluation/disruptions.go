package evaluation

import (
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

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
