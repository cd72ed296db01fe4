package podtransitionrule

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// counters is how a rule fared: what status.rules shows. A request counts once, however
// often the rule is asked about it; what is remembered of it goes when it ends.
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

// resume goes on from what a status says. Requests that wait already may count a second
// time: what was counted of them is not written down.
func (c *counters) resume(status appsv1alpha1.RuleStatus) {
	if status.Enforcement == c.status.Enforcement {
		c.status = *status.DeepCopy()
	}
}

// finding is what a rule said of a request in one round. The request is nil when there was no room
// to keep more (decision.file).
type finding struct {
	request *rule.Request

	// withheld or would is set when it said no; would when it is not enforced.
	withheld, would *rule.Reason
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
