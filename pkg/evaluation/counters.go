package evaluation

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// counters are the numbers of a rule in status.rules. A request counts once, however often the rule is
// evaluated for it, and is dropped when it ends.
type counters struct {
	status appsv1alpha1.RuleStatus
	scope  rule.Scope
}

// counted is the way a request has been counted up to now.
type counted struct{ seen, applied, withheld, would bool }

func newCounters(entry appsv1alpha1.TransitionRule, generation int64) *counters {
	return &counters{
		status: appsv1alpha1.RuleStatus{Name: entry.Name, Enforcement: enforcementOf(entry), Generation: generation},
		scope:  rule.ScopeOf(entry),
	}
}

// resume continues from the counters of a status. Requests that wait already may count a second
// time: the status does not list the requests that it counts.
func (c *counters) resume(status appsv1alpha1.RuleStatus) {
	if status.Enforcement == c.status.Enforcement {
		c.status = *status.DeepCopy()
	}
}

// count adds the finding of a round about one request, which was counted in some ways before, to the Count of the round. A
// request that the rule does not apply to counts as not applicable, until it does.
func (c *counters) count(f finding, last *counted, round *Count, now time.Time) {
	if f.request == nil {
		return
	}
	applies := c.scope.Applies(f.request.Type, f.request.Pod.Labels, f.request.Pod.SkipRules)
	switch {
	case applies && !last.applied:
		round.Evaluated++
		c.status.Evaluated++
	case !applies && !last.seen:
		c.status.NotApplicable++
	}
	if f.withheld != nil && !last.withheld {
		round.Withheld++
		c.status.Withheld++
		c.reject(*f.request, *f.withheld, now)
	}
	if f.would != nil && !last.would {
		round.Would++
		c.status.WouldWithhold++
		c.reject(*f.request, *f.would, now)
	}
	*last = counted{
		seen: true, applied: last.applied || applies, withheld: last.withheld || f.withheld != nil, would: last.would || f.would != nil,
	}
}

// reject puts a rejection first, and drops the oldest rejection beyond the bound.
func (c *counters) reject(request rule.Request, reason rule.Reason, now time.Time) {
	last := append([]appsv1alpha1.Rejection{{
		Pod: request.Pod.Name, ID: request.ID, Reason: string(reason.Code), Message: reason.Message, Time: StatusTime(now),
	}}, c.status.LastRejections...)
	c.status.LastRejections = last[:min(len(last), appsv1alpha1.MaxStatusRejections)]
}

func enforcementOf(rule appsv1alpha1.TransitionRule) appsv1alpha1.Enforcement {
	if rule.Enforcement == "" {
		return appsv1alpha1.EnforcementEnforce
	}
	return rule.Enforcement
}

// Count has the numbers of requests that were new to a rule in a round, that it newly withheld, and that it
// newly would withhold if it were enforced.
type Count struct {
	Rule                       rule.RuleID
	Enforcement                appsv1alpha1.Enforcement
	Evaluated, Withheld, Would int
}

// Count adds the findings of a round to the counters of the rules, keeps the pods that had no turn, and
// returns the numbers that it added.
func (s *State) Count(t *Turn, o Outcome, now time.Time) []Count {
	s.missed = o.Allocation.Plan.Missed
	var counts []Count
	for _, eval := range o.Rules {
		if !eval.skipped {
			counts = append(counts, s.countRule(t, o, eval, now))
		}
	}
	return counts
}

// countRule adds the findings of a round to the counters of one rule.
func (s *State) countRule(t *Turn, o Outcome, eval *Rule, now time.Time) Count {
	prepared, remembered := eval.prepared, eval.prepared.recall()
	count := Count{Rule: prepared.id, Enforcement: prepared.counters.status.Enforcement}
	if len(remembered.requests) == 0 {
		remembered.align(inStage(eval.ruleset.View.Waiting, prepared.stage), 0)
	}
	for i, request := range remembered.requests {
		found, _ := o.Allocation.find(prepared.id, request.Key())
		prepared.counters.count(found, &remembered.notes[i].counted, &count, now)
	}
	s.keep(prepared, remembered, t.remember)
	return count
}

// Statuses returns the counters of the rules of a PodTransitionRule for its status, in the order of spec.rules.
func (r *Ruleset) Statuses() []appsv1alpha1.RuleStatus {
	var statuses []appsv1alpha1.RuleStatus
	for _, entry := range r.View.Object.Spec.Rules {
		for _, eval := range r.Rules {
			if eval.prepared.spec.Name != entry.Name || len(statuses) == appsv1alpha1.MaxStatusRules {
				continue
			}
			status := eval.prepared.counters.status.DeepCopy()
			status.Quarantined = eval.prepared.quarantined.DeepCopy()
			statuses = append(statuses, *status)
		}
	}
	return statuses
}
