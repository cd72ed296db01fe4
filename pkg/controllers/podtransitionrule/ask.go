package podtransitionrule

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

// verdicts are those of one rule for requests of its stage, in their order. A rule that
// cannot be asked withholds; one that stands in says to whom it does not apply.
func (r *Reconciler) verdicts(ctx context.Context, said *ruleDecision, d *decision, requests []policy.Request) []policy.Verdict {
	prepared := said.prepared
	withheld := func(code policy.Code, err error) []policy.Verdict {
		all := make([]policy.Verdict, len(requests))
		for i := range all {
			all[i] = policy.Verdict{Code: code}
			if err != nil && prepared.kind == policy.KindRego {
				all[i].Message = bounded(err.Error(), policy.MaxMessageBytes)
			}
		}
		return all
	}
	if prepared.quarantined != nil {
		return r.quarantined(ctx, said, requests)
	}
	if prepared.program == nil {
		return withheld(codeOf(prepared.err), prepared.err)
	}
	if prepared.needs().Namespace && said.around.Namespace.Labels == nil {
		d.retry = sooner(d.retry, retryStale)
		return withheld(policy.CodeUndefined, errNamespaceUnseen)
	}
	if prepared.needs().Pods || prepared.needs().Permits {
		return r.fleeting(ctx, said, d, requests)
	}
	answer, err := prepared.memo.Evaluate(ctx, prepared.program, prepared.scope(), prepared.stage, said.around, requests)
	if err != nil {
		said.object.evaluateErr = cmp.Or(said.object.evaluateErr, err)
		d.retry = sooner(d.retry, retryFailed)
		return withheld(policy.CodeEvaluationFailed, err)
	}
	said.room = answer.Room
	if prepared.err != nil {
		return blamed(answer.Verdicts, codeOf(prepared.err), prepared.err.Error())
	}
	r.watchDeadlines(said, d, answer.Verdicts)
	return answer.Verdicts
}

// errNamespaceUnseen: a namespace is news that has not come yet. Taken for one without
// labels it might open a door.
var errNamespaceUnseen = errors.New("the namespace has not been seen yet")

// fleeting are the verdicts of a rule that reads other pods, or permits. They hold for
// this round only, and may take longer than a round has: who was not reached keeps the
// refusal of the last time, and comes first in the next round. A pod that is reserved is
// not asked about here: among the permits that the rule sees is its own. Its judges ask.
func (r *Reconciler) fleeting(ctx context.Context, said *ruleDecision, d *decision, requests []policy.Request) []policy.Verdict {
	prepared, live := said.prepared, said.object.view.Live
	verdicts := make([]policy.Verdict, len(requests))
	var order []int
	for i, request := range requests {
		if _, reserved := live[request.Pod.UID]; reserved && prepared.enforced() {
			verdicts[i] = policy.Verdict{Outcome: policy.Passed}
			continue
		}
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(prepared.refusals.rank(requests[a]), prepared.refusals.rank(requests[b]))
	})
	asked := make([]policy.Request, len(order))
	for at, i := range order {
		asked[at] = requests[i]
	}
	result, err := prepared.program.Evaluate(ctx, prepared.stage, said.around, asked)
	if err != nil {
		said.object.evaluateErr = cmp.Or(said.object.evaluateErr, err)
		d.retry = sooner(d.retry, retryFailed)
	}
	refusals := refusals{}
	for _, i := range order {
		key := requests[i].Key()
		verdicts[i] = result.Verdicts[key]
		if err != nil {
			verdicts[i] = policy.Verdict{Code: policy.CodeEvaluationFailed, Message: bounded(err.Error(), policy.MaxMessageBytes)}
		}
		verdicts[i] = refusals.take(key, verdicts[i], prepared.refusals)
	}
	prepared.refusals = refusals
	r.watchDeadlines(said, d, verdicts)
	if refusals.unreached() {
		d.retry = sooner(d.retry, retryStale)
	}
	return verdicts
}

// quarantined are the verdicts of a rule that is not asked any more.
func (r *Reconciler) quarantined(ctx context.Context, said *ruleDecision, requests []policy.Request) []policy.Verdict {
	message := said.prepared.quarantined.Message
	verdicts := make([]policy.Verdict, len(requests))
	for i := range verdicts {
		verdicts[i] = policy.Verdict{Code: policy.CodePolicyTooExpensive, Message: message}
	}
	standIn := r.programs.standIn(ctx, said.prepared.id.Object, said.prepared.spec)
	if standIn == nil {
		return verdicts
	}
	result, err := standIn.Evaluate(ctx, said.prepared.stage, said.around, requests)
	if err != nil {
		return verdicts
	}
	for i, request := range requests {
		verdicts[i] = blame(result.Verdicts[request.Key()], policy.CodePolicyTooExpensive, message)
	}
	return verdicts
}

func blamed(verdicts []policy.Verdict, code policy.Code, message string) []policy.Verdict {
	all := make([]policy.Verdict, len(verdicts))
	for i, verdict := range verdicts {
		all[i] = blame(verdict, code, message)
	}
	return all
}

// watchDeadlines counts the deadlines that a user's module missed, asks again for what
// was not answered, and puts the rule under quarantine when it is too much.
func (r *Reconciler) watchDeadlines(said *ruleDecision, d *decision, verdicts []policy.Verdict) {
	prepared := said.prepared
	if prepared.kind != policy.KindRego {
		return
	}
	late := 0
	for _, verdict := range verdicts {
		switch cmp.Or(verdict.Code, verdict.Would) {
		case policy.CodeTimeout:
			late++
			d.retry = sooner(d.retry, retryFailed)
		case policy.CodeNotReached:
			d.retry = sooner(d.retry, retryStale)
		default: // it answered
		}
	}
	r.metrics.late(prepared.id, late)
	if prepared.quarantined == nil && prepared.strikes.add(late, said.around.Now) {
		prepared.quarantine(said.around.Now)
		r.tellQuarantine(said)
	}
}

// neverPasses asks an availability rule what it would give if every pod were
// available.
func (r *Reconciler) neverPasses(ctx context.Context, counts policy.Counts, prepared *preparedRule) bool {
	total := max(counts.Desired, counts.Selected)
	if prepared.err != nil || total == 0 {
		return false
	}
	counts.Available, counts.Reserved = total, 0
	if never := prepared.never; never.known && never.counts == counts {
		return !never.passes
	}
	result, err := prepared.program.Evaluate(ctx, prepared.stage, policy.Surroundings{Counts: counts}, nil)
	if err != nil || result.Room == nil {
		return false
	}
	prepared.never = neverPasses{known: true, counts: counts, passes: result.Room.Slots > 0}
	return !prepared.never.passes
}

// judgeFor bounds how long the judges of one round may take together. The rest follows
// in the next round, which comes at once.
const judgeFor = 2 * time.Second

// judge asks one rule about one request again, with what was taken before it is its
// turn. Rules that read no other pods are not asked a second time.
func (r *Reconciler) judge(ctx context.Context, d *decision) permit.Judge {
	started := r.clock.Now()
	return func(id policy.RuleID, request policy.Request, taken permit.Taken) (policy.Verdict, bool) {
		said := d.rules[id]
		if r.clock.Since(started) > judgeFor || ctx.Err() != nil {
			d.retry = sooner(d.retry, retryStale)
			if !said.prepared.enforced() {
				return policy.Verdict{Outcome: policy.Passed}, true
			}
			return policy.Verdict{}, false
		}
		if stopped := said.prepared.quarantined; stopped != nil {
			return unlessEnforced(said, policy.Verdict{Code: policy.CodePolicyTooExpensive, Message: stopped.Message})
		}
		around := said.around
		around.Taken = map[types.UID]bool{}
		for uid := range taken.Pods {
			around.Taken[uid] = true
		}
		around.Counts.Reserved += taken.Reserved
		if said.prepared.needs().Permits {
			around.Permits = taken.Permits
		}
		result, err := said.prepared.program.Evaluate(ctx, said.prepared.stage, around, []policy.Request{request})
		if err != nil {
			d.retry = sooner(d.retry, retryFailed)
			return unlessEnforced(said, policy.Verdict{Code: policy.CodeEvaluationFailed, Message: bounded(err.Error(), policy.MaxMessageBytes)})
		}
		verdict := result.Verdicts[request.Key()]
		r.watchDeadlines(said, d, []policy.Verdict{verdict})
		d.would(said, request, verdict)
		return unlessEnforced(said, verdict)
	}
}

// unlessEnforced: a rule that is not enforced refuses nobody, even when it fails.
func unlessEnforced(said *ruleDecision, verdict policy.Verdict) (policy.Verdict, bool) {
	if !said.prepared.enforced() {
		return policy.Verdict{Outcome: policy.Passed}, true
	}
	return verdict, true
}

// count takes what was found in this round into the counters of the rules.
func (r *Reconciler) count(d *decision, now time.Time) {
	for _, object := range d.objects {
		for _, said := range object.rules {
			r.metrics.quarantine(said.prepared.id, said.prepared.quarantined != nil)
			if said.calls != nil {
				tasks, oldest := said.calls.tasks.Running()
				r.metrics.running(said.prepared.id, tasks, oldest)
			}
			findings := make([]finding, 0, len(said.findings))
			for _, request := range inStage(object.view.Waiting, said.prepared.stage) {
				findings = append(findings, said.findings[request.Key()])
			}
			asked, withheld, would := said.prepared.counters.count(findings, now)
			r.metrics.counted(said.prepared.id, said.prepared.counters.status.Enforcement, asked, withheld, would)
		}
	}
}

// ruleStatuses are the counters of an object, in the order of spec.rules.
func ruleStatuses(object *objectDecision) []appsv1alpha1.RuleStatus {
	var statuses []appsv1alpha1.RuleStatus
	for _, rule := range object.view.Object.Spec.Rules {
		for _, said := range object.rules {
			if said.prepared.spec.Name != rule.Name || len(statuses) == appsv1alpha1.MaxStatusRules {
				continue
			}
			status := said.prepared.counters.status.DeepCopy()
			status.Quarantined = said.prepared.quarantined.DeepCopy()
			statuses = append(statuses, *status)
		}
	}
	return statuses
}
