package podtransitionrule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

// decision is what the rules say of all requests that wait in a namespace.
type decision struct {
	// candidates pass every rule, or would with a slot, or if their judges agree.
	candidates []permit.Candidate

	budgets []permit.Budget

	// withheld has the reasons by request key, by rank.
	withheld map[string][]policy.Reason

	// warned are the reasons of rules with enforcement Warn, by request key.
	warned map[string][]policy.Reason

	// objects by name.
	objects map[string]*objectDecision

	// rules by their id.
	rules map[policy.RuleID]*ruleDecision

	// refused counts the rules whose calls are not made because their service is left alone.
	refused int64

	// retry is how soon to ask again although nothing has changed; 0 when there is no
	// need to.
	retry time.Duration
}

// objectDecision is what became known of one PodTransitionRule.
type objectDecision struct {
	view  facts.RuleView
	rules []*ruleDecision

	// neverPasses are the names of availability rules without room even if every pod
	// were available.
	neverPasses []string

	compileErr  error
	evaluateErr error

	// changed remembers callsHaveChanged; nil before it is asked for, when all is decided.
	changed *bool
}

// ruleDecision is what one rule said.
type ruleDecision struct {
	prepared *preparedRule
	object   *objectDecision
	around   policy.Surroundings

	// room of an availability rule that was asked.
	room *policy.Room

	// findings by request key.
	findings map[string]finding

	// calls of a webhook rule; nil for all others.
	calls *taskDecision
}

// decide asks every rule about every request that it could apply to.
func (r *Reconciler) decide(ctx context.Context, view facts.View, prepared map[string][]*preparedRule) *decision {
	now := r.clock.Now()
	d := &decision{
		withheld: map[string][]policy.Reason{}, warned: map[string][]policy.Reason{},
		objects: map[string]*objectDecision{}, rules: map[policy.RuleID]*ruleDecision{},
	}
	asked := map[string]*permit.Candidate{}
	for _, request := range view.Waiting {
		asked[request.Key()] = &permit.Candidate{Request: request}
	}
	budgetsOf := map[types.UID][]string{}
	for _, rule := range view.Rules {
		rules := prepared[rule.Object.Name]
		object := &objectDecision{view: rule, compileErr: cmp.Or(rule.SelectorErr, errorsOf(rules))}
		d.objects[rule.Object.Name] = object
		around := surroundingsOf(view, rule, now)
		for _, one := range rules {
			said := &ruleDecision{prepared: one, object: object, around: around, findings: map[string]finding{}}
			object.rules = append(object.rules, said)
			d.rules[one.id] = said
			r.ask(ctx, said, d, asked)
		}
		if budget, ok := budgetOf(object); ok {
			d.budgets = append(d.budgets, budget)
			for _, request := range rule.Waiting {
				if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Object) {
					budgetsOf[request.Pod.UID] = append(names, budget.Object)
				}
			}
		}
	}
	r.openCalls(d)
	for _, request := range view.Waiting {
		key := request.Key()
		if reasons := d.withheld[key]; len(reasons) > 0 {
			continue
		}
		candidate := asked[key]
		candidate.Budgets = budgetsOf[request.Pod.UID]
		d.candidates = append(d.candidates, *candidate)
	}
	return d
}

// surroundingsOf are the facts beyond the pods that ask.
func surroundingsOf(view facts.View, rule facts.RuleView, now time.Time) policy.Surroundings {
	around := policy.Surroundings{
		Now: now, Namespace: policy.Namespace{Name: view.Namespace, Labels: view.NamespaceLabels},
		Counts: rule.Counts, Pods: rule.Pods, Permits: rule.Permits,
	}
	if len(rule.Live) > 0 {
		around.Taken = map[types.UID]bool{}
		for uid := range rule.Live {
			around.Taken[uid] = true
		}
	}
	return around
}

// ask evaluates one rule for the requests of its stage and files the verdicts.
func (r *Reconciler) ask(ctx context.Context, said *ruleDecision, d *decision, asked map[string]*permit.Candidate) {
	prepared, rule := said.prepared, said.object.view
	requests := inStage(rule.Waiting, prepared.stage)
	if prepared.webhook != nil && prepared.err == nil {
		requests = r.takeIn(said, requests)
	}
	verdicts := r.verdicts(ctx, said, d, requests)
	if said.calls != nil {
		requests, verdicts = r.refused(ctx, said, d, requests, verdicts)
	}
	if prepared.budget() && r.neverPasses(ctx, rule.Counts, prepared) {
		said.object.neverPasses = append(said.object.neverPasses, prepared.spec.Name)
	}
	prepared.nextChecks.keep(requests)
	prepared.wording.keep(requests)
	for i, request := range requests {
		key, verdict := request.Key(), verdicts[i]
		said.findings[key] = finding{request: request}
		if verdict.Call && said.calls != nil {
			said.calls.wants = append(said.calls.wants, request)
		}
		switch {
		case verdict.Outcome == policy.NeedsSlot:
			asked[key].Needs = append(asked[key].Needs, prepared.id)
		case verdict.Outcome != policy.Passed && prepared.enforced():
			d.withhold(said, request, verdict)
		default:
			d.would(said, request, verdict)
			if prepared.judges() {
				asked[key].Judges = append(asked[key].Judges, prepared.id)
			}
		}
	}
}

// withhold files that a rule holds a request back.
func (d *decision) withhold(said *ruleDecision, request policy.Request, verdict policy.Verdict) {
	key := request.Key()
	reason := d.reason(said, request, verdict)
	d.withheld[key] = append(d.withheld[key], reason)
	slices.SortFunc(d.withheld[key], byRank)
	said.findings[key] = finding{request: request, withheld: &reason}
}

// would files that a rule that is not enforced would hold a request back, if it would.
func (d *decision) would(said *ruleDecision, request policy.Request, verdict policy.Verdict) {
	if said.prepared.enforced() || verdict.Outcome == policy.Passed && verdict.Would == "" || verdict.Would == policy.CodeNotReached {
		return
	}
	key := request.Key()
	reason := d.reason(said, request, verdict)
	if said.prepared.spec.Enforcement == appsv1alpha1.EnforcementWarn && said.findings[key].would == nil {
		d.warned[key] = append(d.warned[key], reason)
		slices.SortFunc(d.warned[key], byRank)
	}
	said.findings[key] = finding{request: request, would: &reason}
}

// reason puts a verdict into words, and asks again where the verdict changes by itself.
func (d *decision) reason(said *ruleDecision, request policy.Request, verdict policy.Verdict) policy.Reason {
	reason := reasonOf(said.prepared, said.object.view, request, verdict, said.room)
	if said.calls != nil {
		// When it is called again, openCalls reckons with.
		reason.NextCheck = request.Task.RetryAt
		return reason
	}
	if said.prepared.enforced() && (verdict.RetryAfter > 0 || said.prepared.needs().Now && reason.Code != policy.CodeNotReached) {
		now := said.around.Now
		reason.NextCheck = said.prepared.nextChecks.of(request, verdict, now)
		d.retry = sooner(d.retry, max(reason.NextCheck.Sub(now), time.Millisecond))
	}
	return reason
}

// refuse files the requests that got no slot, or whose judges refused them, with the
// withheld ones.
func (d *decision) refuse(plan permit.Plan) {
	for _, refusal := range plan.Refused {
		if said, ok := d.rules[refusal.Rule]; ok {
			d.withhold(said, refusal.Request, refusal.Verdict)
		}
	}
}

// inStage are the requests of a stage, of both if it is empty. It is the very same list
// when all are, as is usual: lists are long, and each rule asks.
func inStage(requests []policy.Request, stage appsv1alpha1.TransitionStage) []policy.Request {
	elsewhere := func(request policy.Request) bool { return stage != "" && request.Stage != stage }
	if !slices.ContainsFunc(requests, elsewhere) {
		return requests
	}
	return slices.DeleteFunc(slices.Clone(requests), elsewhere)
}

// budgetOf returns the budget of an object with an enforced rule that bounds
// availability, or that judges pods by other pods. A rule whose room is unknown has no
// slot to give.
func budgetOf(object *objectDecision) (permit.Budget, bool) {
	budget := permit.Budget{
		Object: object.view.Object.Name, Slots: map[string]int{}, Live: object.view.Live, Recent: object.view.Permits,
	}
	for _, said := range object.rules {
		switch prepared := said.prepared; {
		case prepared.budget():
			budget.Slots[prepared.spec.Name] = 0
			if said.room != nil {
				budget.Slots[prepared.spec.Name] = said.room.Slots
			}
		case prepared.judges() && prepared.stage == appsv1alpha1.StagePreCheck:
			// One that is not enforced counts what it would do just as well.
			budget.Judged = true
		}
		budget.KeepsRecent = budget.KeepsRecent || said.prepared.needs().Permits
	}
	return budget, len(budget.Slots) > 0 || budget.Judged || budget.KeepsRecent
}
