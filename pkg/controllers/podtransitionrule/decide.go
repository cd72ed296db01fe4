package podtransitionrule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// decision is what the rules say of all requests that wait in a namespace.
type decision struct {
	// candidates pass every rule, or would with a slot, or if their judges agree.
	candidates []permit.Candidate

	budgets []permit.Budget

	// withheld has the reasons by request key, by rank.
	withheld map[string][]rule.Reason

	// warned are the reasons of rules with enforcement Warn, by request key.
	warned map[string][]rule.Reason

	// objects by name.
	objects map[string]*rulesetEvaluation

	// rules by their id, and in the order in which they are evaluated.
	rules   map[rule.RuleID]*ruleEvaluation
	inOrder []*ruleEvaluation

	// turn is the time that the round has.
	turn *turn

	// skipped counts the rules whose calls are skipped because a circuit breaker is open.
	skipped int64

	// retry is how soon to ask again although nothing has changed; 0 when there is no
	// need to.
	retry time.Duration
}

// rulesetEvaluation is what became known of one PodTransitionRule.
type rulesetEvaluation struct {
	view  podindex.RuleView
	rules []*ruleEvaluation

	// neverPasses are the names of availability rules without room even if every pod
	// were available.
	neverPasses []string

	compileErr  error
	evaluateErr error

	// unreached are the stages in which all requests are withheld because the round has ended.
	unreached map[appsv1alpha1.TransitionStage]bool

	// changed remembers callsHaveChanged; nil before it is asked for, when all is decided.
	changed *bool
}

// ruleEvaluation is what one rule said.
type ruleEvaluation struct {
	prepared *preparedRule
	programs *programs
	object   *rulesetEvaluation
	env      rule.Environment

	// recalled is what the rule remembers, while it is open.
	recalled *recollection

	// room of an availability rule that was asked.
	room *rule.Capacity

	// findings by request key.
	findings map[string]finding

	// calls of a webhook rule; nil for all others.
	calls *taskDecision

	// run is the evaluation of a user's module; nil for all others.
	run *moduleRun

	// unopened: the round had no memory to evaluate the user's module.
	unopened bool

	// skipped: the rule was not asked, because the round has ended and another rule of the object
	// withholds the same requests for that.
	skipped bool
}

// decide evaluates every rule for every request that it could apply to.
func (r *Reconciler) decide(ctx context.Context, t *turn, view podindex.Snapshot, prepared map[string][]*preparedRule) *decision {
	d := newDecision(t, r.programs, view, prepared, r.clock.Now())
	r.evaluateModules(ctx, t, d, view.Waiting)
	asked := map[string]*permit.Candidate{}
	for _, request := range view.Waiting {
		asked[request.Key()] = &permit.Candidate{Request: request}
	}
	t.measure(func() {
		for _, eval := range d.inOrder {
			r.ask(ctx, eval, d, asked)
		}
	})
	budgetsOf := d.openBudgets(view)
	d.holdRetired(view, r.clock.Now())
	r.openCalls(d)
	missed := r.missedIn(view.Namespace)
	for _, request := range view.Waiting {
		key := request.Key()
		if reasons := d.withheld[key]; len(reasons) > 0 {
			continue
		}
		candidate := asked[key]
		candidate.Budgets, candidate.Missed = budgetsOf[request.Pod.UID], missed[request.Pod.UID]
		d.candidates = append(d.candidates, *candidate)
	}
	return d
}

// newDecision returns a decision in which no rule has been evaluated.
func newDecision(t *turn, all *programs, view podindex.Snapshot, prepared map[string][]*preparedRule, now time.Time) *decision {
	d := &decision{
		withheld: map[string][]rule.Reason{}, warned: map[string][]rule.Reason{},
		objects: map[string]*rulesetEvaluation{}, rules: map[rule.RuleID]*ruleEvaluation{}, turn: t,
	}
	for _, rule := range view.Rules {
		rules := prepared[rule.Object.Name]
		object := &rulesetEvaluation{view: rule, compileErr: cmp.Or(objectbounds.TooLarge(rule.Object), rule.SelectorErr, errorsOf(rules))}
		d.objects[rule.Object.Name] = object
		env := environmentOf(view, rule, now)
		for _, one := range rules {
			one.lift(rule.Object)
			eval := &ruleEvaluation{prepared: one, programs: all, object: object, env: env, findings: map[string]finding{}}
			object.rules = append(object.rules, eval)
			d.rules[one.id] = eval
			d.inOrder = append(d.inOrder, eval)
		}
	}
	return d
}

// openBudgets files the budgets of all objects, and returns their names by the pods that they
// cover.
func (d *decision) openBudgets(view podindex.Snapshot) map[types.UID][]string {
	budgetsOf := map[types.UID][]string{}
	for _, rule := range view.Rules {
		budget, ok := budgetOf(d.objects[rule.Object.Name])
		if !ok {
			continue
		}
		d.budgets = append(d.budgets, budget)
		for _, request := range rule.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Object) {
				budgetsOf[request.Pod.UID] = append(names, budget.Object)
			}
		}
	}
	return budgetsOf
}

// environmentOf are the facts beyond the pods that ask.
func environmentOf(view podindex.Snapshot, ruleView podindex.RuleView, now time.Time) rule.Environment {
	env := rule.Environment{
		Now: now, Namespace: rule.Namespace{Name: view.Namespace, Labels: view.NamespaceLabels},
		Counts: ruleView.Counts, Pods: ruleView.Pods, Permits: ruleView.Permits,
	}
	if len(ruleView.Live) > 0 {
		env.Committed = map[types.UID]bool{}
		for uid := range ruleView.Live {
			env.Committed[uid] = true
		}
	}
	return env
}

// ask evaluates one rule for the requests of its stage and files the verdicts.
func (r *Reconciler) ask(ctx context.Context, eval *ruleEvaluation, d *decision, asked map[string]*permit.Candidate) {
	prepared, rule := eval.prepared, eval.object.view
	if eval.run == nil && prepared.webhook == nil && eval.object.unreached[prepared.stage] {
		eval.skipped = true
		return
	}
	remembered := eval.open()
	defer eval.close()
	requests := inStage(rule.Waiting, prepared.stage)
	if prepared.webhook != nil && prepared.err == nil {
		requests = r.loadTasks(eval, requests)
	}
	verdicts := r.verdicts(ctx, eval, d, requests)
	if eval.calls != nil {
		requests, verdicts = r.skipCalls(ctx, eval, d, requests, verdicts)
	}
	if prepared.budget() && r.neverPasses(ctx, rule.Counts, prepared) {
		eval.object.neverPasses = append(eval.object.neverPasses, prepared.spec.Name)
	}
	remembered.nextChecks = remembered.nextChecks.keep(requests)
	remembered.messageCache.keep(requests)
	for i, request := range requests {
		key, verdict := request.Key(), verdicts[i]
		d.file(eval, key, finding{request: &requests[i]})
		if verdict.Call && eval.calls != nil {
			eval.calls.wants = append(eval.calls.wants, request)
		}
		d.fileVerdict(eval, request, verdict, asked[key])
	}
}

// fileVerdict files the verdict of a rule on a request, whose candidate needs a slot of the rule, or is
// judged again in the order of permits, or is withheld.
func (d *decision) fileVerdict(eval *ruleEvaluation, request rule.Request, verdict rule.Verdict, candidate *permit.Candidate) {
	prepared := eval.prepared
	switch {
	case verdict.Outcome == rule.NeedsSlot:
		candidate.Needs = append(candidate.Needs, prepared.id)
	case verdict.Outcome != rule.Passed && prepared.enforced():
		d.withhold(eval, request, verdict)
	default:
		d.would(eval, request, verdict)
		if prepared.dependsOnPods() && !eval.stopped() {
			candidate.Rechecked = append(candidate.Rechecked, prepared.id)
		}
	}
}

// stopped reports whether the rule was under quarantine when the round began: its stand-in has
// found to which pods it applies.
func (s *ruleEvaluation) stopped() bool { return s.run != nil && s.run.stopped }

// withhold files that a rule holds a request back.
func (d *decision) withhold(eval *ruleEvaluation, request rule.Request, verdict rule.Verdict) {
	key := request.Key()
	if len(d.withheld[key]) > 0 && !d.turn.holds(2*reasonBytes) {
		return
	}
	reason := d.reason(eval, request, verdict)
	d.turn.held += int64(len(reason.Message) + len(reason.Details))
	d.withheld[key] = ranked(d.withheld[key], reason)
	d.file(eval, key, finding{request: &request, withheld: &reason})
}

// would files that a rule that is not enforced would hold a request back, if it would.
func (d *decision) would(eval *ruleEvaluation, request rule.Request, verdict rule.Verdict) {
	if eval.prepared.enforced() || verdict.Outcome == rule.Passed && verdict.Would == "" {
		return
	}
	if cmp.Or(verdict.Code, verdict.Would) == rule.CodeNotReached {
		return
	}
	key := request.Key()
	if !d.turn.holds(2 * reasonBytes) {
		return
	}
	reason := d.reason(eval, request, verdict)
	d.turn.held += int64(len(reason.Message) + len(reason.Details))
	if eval.prepared.spec.Enforcement == appsv1alpha1.EnforcementWarn && eval.findings[key].would == nil {
		d.warned[key] = ranked(d.warned[key], reason)
	}
	d.file(eval, key, finding{request: &request, would: &reason})
}

// reason puts a verdict into words, and asks again where the verdict changes by itself.
func (d *decision) reason(eval *ruleEvaluation, request rule.Request, verdict rule.Verdict) rule.Reason {
	var reason rule.Reason
	eval.with(func(remembered *recollection) {
		reason = reasonOf(eval.prepared, remembered.messageCache, eval.object.view, request, verdict, eval.room)
	})
	if eval.calls != nil {
		// When it is called again, openCalls reckons with.
		reason.NextCheck = request.Task.RetryAt
		return reason
	}
	if eval.prepared.enforced() && (verdict.RetryAfter > 0 || eval.prepared.needs().Now && reason.Code != rule.CodeNotReached) {
		now := eval.env.Now
		eval.with(func(remembered *recollection) { reason.NextCheck = remembered.nextChecks.of(request, verdict, now) })
		d.retry = minDelay(d.retry, max(reason.NextCheck.Sub(now), time.Millisecond))
	}
	return reason
}

// refuse files the requests that got no slot, or whose judges refused them, with the
// withheld ones.
func (d *decision) refuse(plan permit.Plan) {
	for _, lastDenial := range plan.Refused {
		if eval, ok := d.rules[lastDenial.Rule]; ok {
			d.withhold(eval, lastDenial.Request, lastDenial.Verdict)
		}
	}
}

// inStage are the requests of a stage, of both if it is empty. It is the very same list
// when all are, as is usual: lists are long, and each rule asks.
func inStage(requests []rule.Request, stage appsv1alpha1.TransitionStage) []rule.Request {
	elsewhere := func(request rule.Request) bool { return stage != "" && request.Stage != stage }
	if !slices.ContainsFunc(requests, elsewhere) {
		return requests
	}
	return slices.DeleteFunc(slices.Clone(requests), elsewhere)
}

// budgetOf returns the budget of an object with an enforced rule that bounds
// availability, or that judges pods by other pods. A rule whose room is unknown has no
// slot to give.
func budgetOf(object *rulesetEvaluation) (permit.Budget, bool) {
	budget := permit.Budget{
		Object: object.view.Object.Name, Slots: map[string]int{}, Live: object.view.Live, Inherited: object.view.Inherited,
		Owners: object.view.Owners, Remembered: object.view.Remembered, Recent: object.view.Permits,
	}
	for _, eval := range object.rules {
		switch prepared := eval.prepared; {
		case prepared.budget():
			budget.Slots[prepared.spec.Name] = 0
			if eval.room != nil {
				budget.Slots[prepared.spec.Name] = eval.room.Slots - eval.room.Missing()
			}
		case prepared.dependsOnPods() && prepared.stage == appsv1alpha1.StagePreCheck:
			// One that is not enforced counts what it would do just as well.
			budget.Sequential = true
		}
		budget.KeepsRecent = budget.KeepsRecent || eval.prepared.needs().Permits
	}
	return budget, len(budget.Slots) > 0 || budget.Sequential || budget.KeepsRecent
}
