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

	// known are the requests that wait and are counted, by key and generation.
	known map[string]counted
}

// counted is the way a request has been counted up to now.
type counted struct{ applied, withheld, would bool }

func newCounters(entry appsv1alpha1.TransitionRule, generation int64) *counters {
	return &counters{
		status: appsv1alpha1.RuleStatus{Name: entry.Name, Enforcement: enforcementOf(entry), Generation: generation},
		scope:  rule.ScopeOf(entry),
		known:  map[string]counted{},
	}
}

// resume continues from the counters of a status. Requests that wait already may count a second
// time: the status does not list the requests that it counts.
func (c *counters) resume(status appsv1alpha1.RuleStatus) {
	if status.Enforcement == c.status.Enforcement {
		c.status = *status.DeepCopy()
	}
}

// count takes in the findings of one round, and returns the Count of the round. A request that
// the rule does not apply to counts as not applicable, until it does.
func (c *counters) count(findings []finding, now time.Time) (evaluated, withheld, would int) {
	known := make(map[string]counted, len(findings))
	for _, f := range findings {
		if f.request == nil {
			continue
		}
		key := f.request.Key() + "@" + f.request.Attempt
		last, seen := c.known[key]
		applies := c.scope.Applies(f.request.Type, f.request.Pod.Labels, f.request.Pod.SkipRules)
		switch {
		case applies && !last.applied:
			evaluated++
		case !applies && !seen:
			c.status.NotApplicable++
		}
		if f.withheld != nil && !last.withheld {
			withheld++
			c.reject(*f.request, *f.withheld, now)
		}
		if f.would != nil && !last.would {
			would++
			c.reject(*f.request, *f.would, now)
		}
		known[key] = counted{applied: last.applied || applies, withheld: last.withheld || f.withheld != nil, would: last.would || f.would != nil}
	}
	c.known = known
	c.status.Evaluated += int64(evaluated)
	c.status.Withheld += int64(withheld)
	c.status.WouldWithhold += int64(would)
	return evaluated, withheld, would
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
func (e *Evaluator) Count(s Snapshot, o Outcome, now time.Time) []Count {
	s.state.missed = o.Allocation.Plan.Missed
	var counts []Count
	for _, eval := range o.Rules {
		if !eval.skipped {
			counts = append(counts, e.countRule(o, eval, now))
		}
	}
	return counts
}

// countRule adds the findings of a round to the counters of one rule.
func (e *Evaluator) countRule(o Outcome, eval *Rule, now time.Time) Count {
	prepared := eval.prepared
	count := Count{Rule: prepared.id, Enforcement: prepared.counters.status.Enforcement}
	var findings []finding
	for _, request := range inStage(eval.ruleset.View.Waiting, prepared.stage) {
		found, _ := o.Allocation.find(prepared.id, request.Key())
		findings = append(findings, found)
	}
	e.recollect(prepared, func(remembered *recollection) {
		prepared.counters.known = remembered.counted
		count.Evaluated, count.Withheld, count.Would = prepared.counters.count(findings, now)
		remembered.counted, prepared.counters.known = prepared.counters.known, nil
	})
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
