package evaluation

import (
	"cmp"
	"context"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Evaluate evaluates every rule of a snapshot for every request that it could apply to: first the cheap rules, and last
// the webhook rules and the rules that take slots. modules has the verdicts of users' modules at the same time.
func (e *Evaluator) Evaluate(
	ctx context.Context, t *Turn, snapshot Snapshot, state *State, modules Modules, calls Calls, now time.Time,
) Evaluation {
	w := &evaluating{
		Evaluation: e.newEvaluation(snapshot, now),
		turn:       t, state: state, modules: modules, calls: calls, rejectionRetry: e.rejectionRetry,
	}
	w.approvals = newApprovals(snapshot.Approvals, now)
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
	w.holdFrozen(snapshot, now)
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
	if snapshot.Freeze.Holds(now) {
		w.Frozen = snapshot.Freeze.Message
	}
	for _, view := range snapshot.Rules {
		rules := snapshot.prepared[view.Object.Name]
		ruleset := &Ruleset{View: view, BreakGlass: w.exceptions.breakGlass(), unreached: map[appsv1alpha1.TransitionStage]bool{}}
		ruleset.CompileErr = cmp.Or(objectbounds.TooLarge(view.Object), view.SelectorErr, joinErrors(rules))
		w.Rulesets[view.Object.Name] = ruleset
		env := newEnvironment(snapshot, view, now)
		for _, prepared := range rules {
			eval := &Rule{prepared: prepared, ruleset: ruleset, env: env}
			ruleset.Rules = append(ruleset.Rules, eval)
			w.Rules[prepared.id] = eval
			w.inOrder = append(w.inOrder, eval)
		}
	}
	return w
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
	if prepared.kind == rule.KindApproval {
		requests, version = w.approvals.add(requests), 0 // users decide meanwhile
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
	prepared := eval.prepared
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
		if prepared.dependsOnPods() && !w.isFallback(prepared) {
			candidate.Rechecked = append(candidate.Rechecked, prepared.id)
			waiveNeed(candidate, prepared.id, exception)
		}
	}
}

// isFallback reports whether the fallback of a rule that was under quarantine when the round began has found to which pods the rule applies.
func (w *evaluating) isFallback(prepared *preparedRule) bool {
	run := w.modules[prepared]
	return run != nil && run.stopped
}
