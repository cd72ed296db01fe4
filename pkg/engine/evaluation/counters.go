package evaluation

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// finding is the verdict of a rule on a request in one round. The request is nil when there was no memory to
// keep more (findings.file).
type finding struct {
	request *rule.Request

	// withheld or would is set when the rule denied the request; would when it is not enforced.
	withheld, would *rule.Reason
}

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
		status: appsv1alpha1.RuleStatus{Name: entry.Name, Enforcement: defaultedEnforcement(entry), Generation: generation},
		scope:  rule.NewScope(entry),
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
	c.approve(f, applies, now)
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

// approve puts the revision first that replaces a pod which has passed, and drops the oldest revision beyond the bound.
func (c *counters) approve(f finding, applies bool, now time.Time) {
	approval := f.request.Approval
	if !applies || f.withheld != nil || f.would != nil || !approval.IsUsed() {
		return
	}
	by := approval.ApprovedBy[:min(len(approval.ApprovedBy), appsv1alpha1.MaxStatusApprovers)]
	for i, known := range c.status.LastApprovals {
		if known.Workload == approval.Workload && known.Revision == approval.Revision {
			c.status.LastApprovals[i].ApprovedBy, c.status.LastApprovals[i].Reasons = by, approval.Reasons
			return
		}
	}
	last := append([]appsv1alpha1.ApprovedRevision{{
		Workload: approval.Workload, Revision: approval.Revision, ApprovedBy: by, Reasons: approval.Reasons, Time: StatusTime(now),
	}}, c.status.LastApprovals...)
	c.status.LastApprovals = last[:min(len(last), appsv1alpha1.MaxStatusApprovals)]
}

// Count has the numbers of requests that were new to a rule in a round, that it newly withheld, and that it
// newly would withhold if it were enforced.
type Count struct {
	Rule                       rule.RuleID
	Enforcement                appsv1alpha1.Enforcement
	Evaluated, Withheld, Would int
}

// StatusTime returns a time in whole seconds, as the API server stores it. With fractions a status would
// always differ from the stored status, and be written every second.
func StatusTime(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
