package evaluation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// Evaluation is the result of the rules of a namespace for all requests that wait. It is not modified
// after Evaluate has returned it.
type Evaluation struct {
	findings

	// candidates are the requests that passed every rule except the rules that permit.Next checks:
	// availability slots, and rules that read other pods.
	candidates []permit.Candidate

	// budgets are the slots of the availability rules.
	budgets []permit.Budget

	// disruptions are the PodDisruptionBudgets by their id.
	disruptions map[rule.RuleID]*disruption

	// exceptions are why requests pass rules that withhold them.
	exceptions exceptions

	// Rulesets by name.
	Rulesets map[string]*Ruleset

	// Rules by their id, and in the order in which they are evaluated.
	Rules   map[rule.RuleID]*Rule
	inOrder []*Rule

	Effects

	// Retry is the delay after which the rules are evaluated again although nothing has changed; 0 for never.
	Retry time.Duration
}

// Effects are what the caller has to count and report. The State of the namespace has them already.
type Effects struct {
	// Late is the number of evaluations of each rule that used up their CPU time without a verdict.
	Late map[rule.RuleID]int

	// Quarantined are the rules that went under quarantine.
	Quarantined []*Rule

	// Skipped are the calls that were recorded as failed without being made.
	Skipped []SkippedCalls
}

// strike counts evaluations of a rule without a verdict, the last one for a reason.
func (e *Effects) strike(eval *Rule, missed int, why string) {
	if missed == 0 {
		return
	}
	if e.Late == nil {
		e.Late = map[rule.RuleID]int{}
	}
	e.Late[eval.ID()] += missed
	if eval.prepared.strike(eval.Object(), missed, why, eval.env.Now) {
		e.Quarantined = append(e.Quarantined, eval)
	}
}

// Ruleset is the result of one PodTransitionRule.
type Ruleset struct {
	View podindex.RuleView

	// Rules in the order in which they are evaluated.
	Rules []*Rule

	// NeverPasses are the names of availability rules without capacity even if every pod were available.
	NeverPasses []string

	// CompileErr is why rules cannot be evaluated, EvaluateErr why an evaluation has failed.
	CompileErr  error
	EvaluateErr error

	// BreakGlass is the reason of the break-glass annotation with which every pod passes the
	// PreCheck rules; empty without it.
	BreakGlass string

	// unreached are the stages in which all requests are withheld because the round has ended.
	unreached map[appsv1alpha1.TransitionStage]bool

	// CallsChanged reports whether the stored status differs from the calls of the webhook rules.
	CallsChanged bool
}

// Rule is the result of one rule.
type Rule struct {
	prepared *preparedRule
	ruleset  *Ruleset
	env      rule.Environment

	// capacity of an availability rule that was evaluated.
	capacity *rule.Capacity

	// most is its capacity if every pod were available; nil when it is unknown.
	most *rule.Capacity

	// Calls of a webhook rule; nil for all others.
	Calls *CallPlan

	// skipped reports whether the rule was not evaluated, because the round has ended and another rule of
	// the PodTransitionRule withholds the same requests for that.
	skipped bool
}

// ID returns the id of the rule.
func (e *Rule) ID() rule.RuleID { return e.prepared.id }

// Stage returns the stage in which the rule is evaluated.
func (e *Rule) Stage() appsv1alpha1.TransitionStage { return e.prepared.stage }

// Webhook returns the webhook of the rule in its canonical spelling; nil for other kinds.
func (e *Rule) Webhook() *appsv1alpha1.TransitionRuleWebhook { return e.prepared.webhook }

// Object returns the PodTransitionRule of the rule.
func (e *Rule) Object() *appsv1alpha1.PodTransitionRule { return e.ruleset.View.Object }

// Quarantine returns the quarantine of the rule; nil when it is not under quarantine.
func (e *Rule) Quarantine() *appsv1alpha1.Quarantine { return e.prepared.quarantined }

// Budget has the number of pods that an availability rule permits to be unavailable, and the number of pods
// that are, including reserved pods.
type Budget struct {
	Unavailable int
	Limit       int
}

// BoundsAvailability reports whether the rule is an enforced availability rule.
func (e *Rule) BoundsAvailability() bool { return e.prepared.budget() }

// Budget returns the budget of an availability rule, whether or not a pod waits for it. It returns false when the
// rule could not be evaluated.
func (e *Rule) Budget() (Budget, bool) {
	counts := e.env.Counts
	switch {
	case max(counts.Desired, counts.Selected) == 0:
		return Budget{}, true
	case e.most == nil:
		return Budget{}, false
	default:
		return Budget{Unavailable: max(0, counts.Desired-counts.Available+counts.Reserved), Limit: limitOf(*e.most)}, true
	}
}

// Now returns the time of the evaluation.
func (e *Rule) Now() time.Time { return e.env.Now }

// evaluating is an evaluation in progress.
type evaluating struct {
	*Evaluation
	turn           *Turn
	state          *State
	modules        Modules
	calls          Calls
	rejectionRetry time.Duration
}

// Evaluate evaluates every rule of a snapshot for every request that it could apply to: first the cheap rules, and last
// the webhook rules and the rules that take slots. modules has the verdicts of users' modules of the same time.
func (e *Evaluator) Evaluate(
	ctx context.Context, t *Turn, snapshot Snapshot, state *State, modules Modules, calls Calls, now time.Time,
) Evaluation {
	w := &evaluating{
		Evaluation: e.newEvaluation(snapshot, now),
		turn:       t, state: state, modules: modules, calls: calls, rejectionRetry: e.rejectionRetry,
	}
	w.exceptions.held = state.observeHolds(snapshot, e.hold, now)
	candidates := map[string]*permit.Candidate{}
	for _, request := range snapshot.Waiting {
		candidates[request.Key()] = &permit.Candidate{Request: request}
	}
	defer t.measure()()
	for _, eval := range w.inOrder {
		w.evaluateRule(ctx, eval, candidates)
	}
	budgetsOf := w.openBudgets(snapshot)
	w.openDisruptions(snapshot, candidates, budgetsOf, now)
	w.holdRetired(snapshot, now)
	state.observeRefused(snapshot.Waiting)
	for _, request := range snapshot.Waiting {
		if len(w.withheld[request.Key()]) > 0 || snapshot.IsNeeded(request.Pod.UID) && request.ID == appsv1alpha1.PodDeleteID {
			continue
		}
		candidate := candidates[request.Key()]
		candidate.With = withPod(snapshot.Rules, request)
		candidate.Budgets, candidate.Missed = budgetsOf[request.Pod.UID], state.missed[request.Pod.UID]
		candidate.Absent = state.isRefused(request)
		w.candidates = append(w.candidates, *candidate)
	}
	return *w.Evaluation
}

// newEvaluation returns an evaluation in which no rule has been evaluated.
func (e *Evaluator) newEvaluation(snapshot Snapshot, now time.Time) *Evaluation {
	w := &Evaluation{
		findings: newFindings(), disruptions: map[rule.RuleID]*disruption{}, Rulesets: map[string]*Ruleset{}, Rules: map[rule.RuleID]*Rule{},
	}
	w.exceptions = exceptions{hold: e.hold, now: now, namespace: snapshot.BreakGlass, cluster: snapshot.ClusterBreakGlass}
	for _, view := range snapshot.Rules {
		rules := snapshot.prepared[view.Object.Name]
		ruleset := &Ruleset{View: view, BreakGlass: w.exceptions.breakGlass(), unreached: map[appsv1alpha1.TransitionStage]bool{}}
		ruleset.CompileErr = cmp.Or(objectbounds.TooLarge(view.Object), view.SelectorErr, errorsOf(rules))
		w.Rulesets[view.Object.Name] = ruleset
		env := environmentOf(snapshot, view, now)
		for _, prepared := range rules {
			eval := &Rule{prepared: prepared, ruleset: ruleset, env: env}
			ruleset.Rules = append(ruleset.Rules, eval)
			w.Rules[prepared.id] = eval
			w.inOrder = append(w.inOrder, eval)
		}
	}
	return w
}

// openBudgets adds the budgets of all PodTransitionRules, and returns their names by the pods that they
// cover.
func (w *evaluating) openBudgets(snapshot Snapshot) map[types.UID][]string {
	budgetsOf := map[types.UID][]string{}
	for _, view := range snapshot.Rules {
		budget, ok := budgetOf(w.Rulesets[view.Object.Name])
		if !ok {
			continue
		}
		w.budgets = append(w.budgets, budget)
		for _, request := range view.Waiting {
			if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Ruleset) {
				budgetsOf[request.Pod.UID] = append(names, budget.Ruleset)
			}
		}
	}
	return budgetsOf
}

// withPod returns the numbers of available pods that go with the pod of a request, by the budget that counts
// them; nil if none do.
func withPod(views []podindex.RuleView, request rule.Request) map[string]int {
	var with map[string]int
	for _, view := range views {
		pods := view.With[request.Pod.UID]
		if pods == 0 || request.Stage != appsv1alpha1.StagePreCheck {
			continue
		}
		if with == nil {
			with = map[string]int{}
		}
		with[view.Object.Name] = pods
	}
	return with
}

// environmentOf returns the environment of the rules of a PodTransitionRule: the facts beyond the pod of
// a request.
func environmentOf(snapshot Snapshot, view podindex.RuleView, now time.Time) rule.Environment {
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
func (w *evaluating) evaluateRule(ctx context.Context, eval *Rule, candidates map[string]*permit.Candidate) {
	prepared, view, run := eval.prepared, eval.ruleset.View, w.modules[eval.prepared]
	if (run == nil || run.unopened) && prepared.webhook == nil && eval.ruleset.unreached[prepared.stage] {
		eval.skipped = true
		return
	}
	recalled := prepared.recall()
	if run != nil && run.recalled != nil {
		recalled = run.recalled
	}
	requests, version := inStage(view.Waiting, prepared.stage), view.WaitingVersion
	if prepared.webhook != nil && prepared.err == nil {
		requests, version = w.loadTasks(eval, requests), 0 // their tasks change, too
	}
	verdicts := w.verdicts(ctx, eval, recalled, requests, version)
	if eval.Calls != nil {
		requests, verdicts = w.skipCalls(ctx, eval, recalled, requests, verdicts)
	}
	if prepared.budget() {
		eval.findMost(ctx)
	}
	recalled.align(requests, version)
	for i, request := range requests {
		key, verdict := request.Key(), verdicts[i]
		w.file(w.turn, prepared.id, key, finding{request: &requests[i]})
		w.fileVerdict(eval, remark{of: recalled, at: i}, request, verdict, candidates[key])
	}
	w.state.keep(prepared, recalled, w.turn.remember)
}

// fileVerdict files the verdict of a rule on a request: its candidate needs a slot of the rule, or is
// checked again in the order of permits, or the request is withheld. With an exception it is not, and no
// service is called about it.
func (w *evaluating) fileVerdict(eval *Rule, remembered remark, request rule.Request, verdict rule.Verdict, candidate *permit.Candidate) {
	prepared, run := eval.prepared, w.modules[eval.prepared]
	exception, reason := w.exceptions.exceptionForRule(eval, request)
	if verdict.Call && eval.Calls != nil && exception == "" {
		eval.Calls.wants = append(eval.Calls.wants, request)
	}
	switch {
	case verdict.Outcome == rule.Withheld && prepared.enforced() && exception != "":
		w.waive(w.turn, request, rule.Waiver{
			Rule: prepared.id, Code: cmp.Or(verdict.Code, rule.CodeUndefined), Exception: exception, Reason: reason,
		})
	case verdict.Outcome == rule.NeedsSlot || verdict.Outcome == rule.Passed && eval.needsSlots(request):
		candidate.Needs = append(candidate.Needs, prepared.id)
		waiveNeed(candidate, prepared.id, exception)
	case verdict.Outcome != rule.Passed && prepared.enforced():
		w.retryIn(w.withhold(w.turn, remembered, eval, request, verdict))
	default:
		w.retryIn(w.would(w.turn, remembered, eval, request, verdict))
		// The fallback of a rule that was under quarantine when the round began has found to which pods it applies.
		if prepared.dependsOnPods() && (run == nil || !run.stopped) {
			candidate.Rechecked = append(candidate.Rechecked, prepared.id)
			waiveNeed(candidate, prepared.id, exception)
		}
	}
}

// needsSlots reports whether the rule is an enforced availability rule that applies to a request, and available
// pods go with its pod. A rule passes a pod that is itself unavailable.
func (e *Rule) needsSlots(request rule.Request) bool {
	return e.prepared.budget() && e.ruleset.View.With[request.Pod.UID] > 0 && request.Stage == appsv1alpha1.StagePreCheck &&
		rule.ScopeOf(e.prepared.spec).Applies(request.Type, request.Pod.Labels, request.Pod.SkipRules)
}

// retryIn has the rules evaluated again after a delay, unless that happens sooner; 0 changes nothing.
func (e *Evaluation) retryIn(delay time.Duration) { e.Retry = backoff.MinDelay(e.Retry, delay) }

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
func budgetOf(ruleset *Ruleset) (permit.Budget, bool) {
	view := ruleset.View
	budget := permit.Budget{
		Ruleset: view.Object.Name, Slots: map[string]int{}, Live: view.Live, Inherited: view.Inherited,
		Owners: view.Owners, Remembered: view.Remembered, Recent: view.Permits,
	}
	for _, eval := range ruleset.Rules {
		switch prepared := eval.prepared; {
		case prepared.budget():
			budget.Slots[prepared.spec.Name] = 0
			if eval.capacity != nil {
				budget.Slots[prepared.spec.Name] = eval.capacity.Slots - eval.capacity.Missing()
			}
		case prepared.dependsOnPods() && prepared.stage == appsv1alpha1.StagePreCheck:
			// A rule that is not enforced counts its verdicts as well.
			budget.Sequential = true
		}
		budget.KeepsRecent = budget.KeepsRecent || eval.prepared.needs().Permits
	}
	return budget, len(budget.Slots) > 0 || budget.Sequential || budget.KeepsRecent
}
