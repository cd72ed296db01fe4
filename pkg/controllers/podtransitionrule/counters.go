package podtransitionrule

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

// counted is how a request counts so far.
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

// count takes in the findings of one round, and returns how many requests were new to the rule,
// newly withheld and newly would be. A request that the rule does not apply to counts as not
// applicable, until it does.
func (c *counters) count(findings []finding, now time.Time) (asked, withheld, would int) {
	known := make(map[string]counted, len(findings))
	for _, f := range findings {
		if f.request == nil {
			continue
		}
		key := f.request.Key() + "@" + f.request.Generation
		last, seen := c.known[key]
		applies := c.scope.Applies(f.request.Type, f.request.Pod.Labels, f.request.Pod.SkipRules)
		switch {
		case applies && !last.applied:
			asked++
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
	c.status.Asked += int64(asked)
	c.status.Withheld += int64(withheld)
	c.status.WouldWithhold += int64(would)
	return asked, withheld, would
}

// reject puts a rejection first, and drops the oldest one beyond the bound.
func (c *counters) reject(request rule.Request, reason rule.Reason, now time.Time) {
	last := append([]appsv1alpha1.Rejection{{
		Pod: request.Pod.Name, ID: request.ID, Reason: string(reason.Code), Message: reason.Message, Time: statusTime(now),
	}}, c.status.LastRejections...)
	c.status.LastRejections = last[:min(len(last), appsv1alpha1.MaxStatusRejections)]
}

func enforcementOf(rule appsv1alpha1.TransitionRule) appsv1alpha1.Enforcement {
	if rule.Enforcement == "" {
		return appsv1alpha1.EnforcementEnforce
	}
	return rule.Enforcement
}

// count adds the findings of a round to the counters of the rules, and to their metrics, and records the
// quarantines that began in it.
func (r *Reconciler) count(snapshot snapshot, o outcome, now time.Time) {
	snapshot.state.missed = o.allocation.plan.Missed
	for id, eval := range o.rules {
		r.metrics.quarantine(id, eval.prepared.quarantined != nil)
		r.metrics.late(id, eval.late+o.allocation.late[id])
		if eval.isQuarantined {
			r.recordQuarantine(eval)
		}
		if eval.calls != nil {
			tasks, oldest := eval.calls.tasks.Running()
			r.metrics.running(id, tasks, oldest)
		}
		if !eval.skipped {
			r.countRule(o, eval, now)
		}
	}
	for _, eval := range o.allocation.quarantined {
		r.recordQuarantine(eval)
	}
}

// countRule adds the findings of a round to the counters of one rule.
func (r *Reconciler) countRule(o outcome, eval *ruleEvaluation, now time.Time) {
	prepared := eval.prepared
	var findings []finding
	for _, request := range inStage(eval.ruleset.view.Waiting, prepared.stage) {
		found, _ := o.allocation.of(prepared.id, request.Key())
		findings = append(findings, found)
	}
	r.state.with(prepared, func(remembered *recollection) {
		prepared.counters.known = remembered.counted
		asked, withheld, would := prepared.counters.count(findings, now)
		remembered.counted, prepared.counters.known = prepared.counters.known, nil
		r.metrics.counted(prepared.id, prepared.counters.status.Enforcement, asked, withheld, would)
	})
}

// ruleStatuses returns the counters of a PodTransitionRule, in the order of spec.rules.
func ruleStatuses(ruleset *rulesetEvaluation) []appsv1alpha1.RuleStatus {
	var statuses []appsv1alpha1.RuleStatus
	for _, rule := range ruleset.view.Object.Spec.Rules {
		for _, eval := range ruleset.rules {
			if eval.prepared.spec.Name != rule.Name || len(statuses) == appsv1alpha1.MaxStatusRules {
				continue
			}
			status := eval.prepared.counters.status.DeepCopy()
			status.Quarantined = eval.prepared.quarantined.DeepCopy()
			statuses = append(statuses, *status)
		}
	}
	return statuses
}
