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

// evaluation is the result of the rules of a namespace for all requests that wait. It is not modified
// after evaluate has returned it.
type evaluation struct {
	findings

	// candidates are the requests that passed every rule except those still to be checked by
	// permit.Next: availability slots, and rules that read other pods.
	candidates []permit.Candidate

	// budgets are what the availability rules have to give.
	budgets []permit.Budget

	// rulesets by name.
	rulesets map[string]*rulesetEvaluation

	// rules by their id.
	rules map[rule.RuleID]*ruleEvaluation

	// retry is the delay after which the rules are evaluated again although nothing has changed; 0 for never.
	retry time.Duration
}

// rulesetEvaluation is the result of one PodTransitionRule.
type rulesetEvaluation struct {
	view podindex.RuleView

	// rules in the order in which they are evaluated.
	rules []*ruleEvaluation

	// neverPasses are the names of availability rules without capacity even if every pod were available.
	neverPasses []string

	// compileErr is why rules cannot be evaluated, evaluateErr why an evaluation has failed.
	compileErr  error
	evaluateErr error

	// callsChanged reports whether the stored status differs from the calls of the webhook rules.
	callsChanged bool
}

// ruleEvaluation is the result of one rule.
type ruleEvaluation struct {
	prepared *preparedRule
	ruleset  *rulesetEvaluation
	env      rule.Environment

	// capacity of an availability rule that was evaluated.
	capacity *rule.Capacity

	// calls of a webhook rule; nil for all others.
	calls *callPlan

	// late is the number of evaluations that used up their CPU time without a verdict.
	late int

	// isQuarantined reports whether the rule went under quarantine in this round.
	isQuarantined bool

	// skipped reports whether the rule was not evaluated, because the round has ended and another rule of
	// the PodTransitionRule withholds the same requests for that.
	skipped bool
}

// evaluating is an evaluation in progress.
type evaluating struct {
	*evaluation
	turn  *turn
	state *state

	// rules in the order in which they are evaluated.
	rules []*ruleWork
}

// ruleWork is the evaluation of one rule in progress.
type ruleWork struct {
	*ruleEvaluation
	state *state

	// recalled is the recollection of the rule, while it is open.
	recalled *recollection

	// run is the evaluation of a user's module; nil for all others.
	run *moduleRun

	// unopened reports whether the round had no memory to evaluate the user's module.
	unopened bool

	// wants are the requests about which the rule needs an answer of its service.
	wants []rule.Request

	// unreached are the stages of the PodTransitionRule in which all requests are withheld because the
	// round has ended. Its rules share it.
	unreached map[appsv1alpha1.TransitionStage]bool
}

// evaluate evaluates every rule of a snapshot for every request that it could apply to: users' modules
// first, which may take several rounds; then the cheap rules; last the webhook rules and those that take
// slots.
func (r *Reconciler) evaluate(ctx context.Context, t *turn, snapshot snapshot) evaluation {
	now := r.clock.Now()
	w := r.newWork(t, snapshot, now)
	r.evaluateModules(ctx, w, snapshot.Waiting)
	candidates := map[string]*permit.Candidate{}
	for _, request := range snapshot.Waiting {
		candidates[request.Key()] = &permit.Candidate{Request: request}
	}
	t.measure(func() {
		for _, work := range w.rules {
			r.evaluateRule(ctx, work, w, candidates)
		}
	})
	budgetsOf := w.openBudgets(snapshot)
	w.holdRetired(snapshot, now)
	r.openCalls(w)
	for _, request := range snapshot.Waiting {
		if len(w.withheld[request.Key()]) > 0 {
			continue
		}
		candidate := candidates[request.Key()]
		candidate.Budgets, candidate.Missed = budgetsOf[request.Pod.UID], snapshot.state.missed[request.Pod.UID]
		w.candidates = append(w.candidates, *candidate)
	}
	return *w.evaluation
}

// newWork returns an evaluation in which no rule has been evaluated.
func (r *Reconciler) newWork(t *turn, snapshot snapshot, now time.Time) *evaluating {
	w := &evaluating{
		evaluation: &evaluation{
			findings: newFindings(), rulesets: map[string]*rulesetEvaluation{}, rules: map[rule.RuleID]*ruleEvaluation{},
		},
		turn: t, state: r.state,
	}
	for _, view := range snapshot.Rules {
		rules := snapshot.prepared[view.Object.Name]
		ruleset := &rulesetEvaluation{view: view, compileErr: cmp.Or(objectbounds.TooLarge(view.Object), view.SelectorErr, errorsOf(rules))}
		w.rulesets[view.Object.Name] = ruleset
		env, unreached := environmentOf(snapshot, view, now), map[appsv1alpha1.TransitionStage]bool{}
		for _, prepared := range rules {
			prepared.lift(view.Object)
			eval := &ruleEvaluation{prepared: prepared, ruleset: ruleset, env: env}
			ruleset.rules = append(ruleset.rules, eval)
			w.evaluation.rules[prepared.id] = eval
			w.rules = append(w.rules, &ruleWork{ruleEvaluation: eval, state: r.state, unreached: unreached})
		}
	}
	return w
}

// openBudgets adds the budgets of all PodTransitionRules, and returns their names by the pods that they
// cover.
func (w *evaluating) openBudgets(snapshot snapshot) map[types.UID][]string {
	budgetsOf := map[types.UID][]string{}
	for _, view := range snapshot.Rules {
		budget, ok := budgetOf(w.rulesets[view.Object.Name])
		if !ok {
			continue
		}
		w.budgets = append(w.budgets, budget)
		for _, request := range view.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Object) {
				budgetsOf[request.Pod.UID] = append(names, budget.Object)
			}
		}
	}
	return budgetsOf
}

// environmentOf returns the environment of the rules of a PodTransitionRule: the facts beyond the pod of
// a request.
func environmentOf(snapshot snapshot, view podindex.RuleView, now time.Time) rule.Environment {
	env := rule.Environment{
		Now: now, Namespace: rule.Namespace{Name: snapshot.Namespace, Labels: snapshot.NamespaceLabels},
		Counts: view.Counts, Pods: view.Pods, Permits: view.Permits,
	}
	if len(view.Live) > 0 {
		env.Committed = map[types.UID]bool{}
		for uid := range view.Live {
			env.Committed[uid] = true
		}
	}
	return env
}

// evaluateRule evaluates one rule for the requests of its stage and files the verdicts.
func (r *Reconciler) evaluateRule(ctx context.Context, work *ruleWork, w *evaluating, candidates map[string]*permit.Candidate) {
	prepared, view := work.prepared, work.ruleset.view
	if work.run == nil && prepared.webhook == nil && work.unreached[prepared.stage] {
		work.skipped = true
		return
	}
	remembered := work.open()
	defer work.close()
	requests := inStage(view.Waiting, prepared.stage)
	if prepared.webhook != nil && prepared.err == nil {
		requests = r.loadTasks(work, requests)
	}
	verdicts := r.verdicts(ctx, work, w, requests)
	if work.calls != nil {
		requests, verdicts = r.skipCalls(ctx, work, w, requests, verdicts)
	}
	if prepared.budget() && r.neverPasses(ctx, view.Counts, prepared) {
		work.ruleset.neverPasses = append(work.ruleset.neverPasses, prepared.spec.Name)
	}
	remembered.nextChecks = remembered.nextChecks.keep(requests)
	remembered.messageCache.keep(requests)
	for i, request := range requests {
		key, verdict := request.Key(), verdicts[i]
		w.file(w.turn, prepared.id, key, finding{request: &requests[i]})
		if verdict.Call && work.calls != nil {
			work.wants = append(work.wants, request)
		}
		w.fileVerdict(work, request, verdict, candidates[key])
	}
}

// fileVerdict files the verdict of a rule on a request: its candidate needs a slot of the rule, or is
// checked again in the order of permits, or the request is withheld.
func (w *evaluating) fileVerdict(work *ruleWork, request rule.Request, verdict rule.Verdict, candidate *permit.Candidate) {
	prepared := work.prepared
	switch {
	case verdict.Outcome == rule.NeedsSlot:
		candidate.Needs = append(candidate.Needs, prepared.id)
	case verdict.Outcome != rule.Passed && prepared.enforced():
		w.retryIn(w.withhold(w.turn, work.open(), work.ruleEvaluation, request, verdict))
	default:
		w.retryIn(w.would(w.turn, work.open(), work.ruleEvaluation, request, verdict))
		if prepared.dependsOnPods() && !work.stopped() {
			candidate.Rechecked = append(candidate.Rechecked, prepared.id)
		}
	}
}

// retryIn has the rules evaluated again after a delay, unless that happens sooner; 0 changes nothing.
func (w *evaluating) retryIn(delay time.Duration) { w.retry = minDelay(w.retry, delay) }

// stopped reports whether the rule was under quarantine when the round began: its fallback has
// found to which pods it applies.
func (w *ruleWork) stopped() bool { return w.run != nil && w.run.stopped }

// inStage returns the requests of a stage, of both if it is empty. Usually all are, and the list is
// returned without a copy.
func inStage(requests []rule.Request, stage appsv1alpha1.TransitionStage) []rule.Request {
	elsewhere := func(request rule.Request) bool { return stage != "" && request.Stage != stage }
	if !slices.ContainsFunc(requests, elsewhere) {
		return requests
	}
	return slices.DeleteFunc(slices.Clone(requests), elsewhere)
}

// budgetOf returns the budget of a PodTransitionRule with an enforced rule that bounds availability, or
// that depends on other pods. A rule whose capacity is unknown has no slot to give.
func budgetOf(ruleset *rulesetEvaluation) (permit.Budget, bool) {
	view := ruleset.view
	budget := permit.Budget{
		Object: view.Object.Name, Slots: map[string]int{}, Live: view.Live, Inherited: view.Inherited,
		Owners: view.Owners, Remembered: view.Remembered, Recent: view.Permits,
	}
	for _, eval := range ruleset.rules {
		switch prepared := eval.prepared; {
		case prepared.budget():
			budget.Slots[prepared.spec.Name] = 0
			if eval.capacity != nil {
				budget.Slots[prepared.spec.Name] = eval.capacity.Slots - eval.capacity.Missing()
			}
		case prepared.dependsOnPods() && prepared.stage == appsv1alpha1.StagePreCheck:
			// A rule that is not enforced counts what it would do just as well.
			budget.Sequential = true
		}
		budget.KeepsRecent = budget.KeepsRecent || eval.prepared.needs().Permits
	}
	return budget, len(budget.Slots) > 0 || budget.Sequential || budget.KeepsRecent
}
