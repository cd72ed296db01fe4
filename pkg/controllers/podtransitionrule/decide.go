package podtransitionrule

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

// decision is what the rules say of all requests that wait in a namespace.
type decision struct {
	// candidates pass every rule, or would with a slot.
	candidates []permit.Candidate

	budgets []permit.Budget

	// withheld has the reasons by request key, sorted by rule.
	withheld map[string][]policy.Reason

	// would are the warnings of rules with enforcement Warn, by request key.
	would map[string][]policy.Reason

	objects map[string]objectDecision

	// failed: a rule could not be evaluated. Nothing need change for it to work the
	// next time.
	failed bool
}

// objectDecision is what became known of one PodTransitionRule.
type objectDecision struct {
	rules []*preparedRule

	// rooms by rule name, of the availability rules that were asked.
	rooms map[string]*policy.Room

	// neverPasses are the names of availability rules without room even if every pod
	// were available.
	neverPasses []string

	compileErr  error
	evaluateErr error
}

// decide asks every rule about every request that it could apply to.
func (r *Reconciler) decide(ctx context.Context, view facts.View) decision {
	d := decision{
		withheld: map[string][]policy.Reason{}, would: map[string][]policy.Reason{},
		objects: map[string]objectDecision{},
	}
	needs := map[string][]policy.RuleID{}
	budgetsOf := map[types.UID][]string{}
	for _, rule := range view.Rules {
		rules := r.programs.of(ctx, rule.Object)
		object := objectDecision{rules: rules, rooms: map[string]*policy.Room{}, compileErr: cmp.Or(rule.SelectorErr, errorsOf(rules))}
		for _, prepared := range rules {
			r.ask(ctx, rule, prepared, &object, &d, needs)
		}
		if budget, ok := budgetOf(rule, rules, object.rooms); ok {
			d.budgets = append(d.budgets, budget)
			for _, request := range rule.Waiting {
				if names := budgetsOf[request.Pod.UID]; !slices.Contains(names, budget.Object) {
					budgetsOf[request.Pod.UID] = append(names, budget.Object)
				}
			}
		}
		d.objects[rule.Object.Name] = object
	}
	for _, request := range view.Waiting {
		key := request.Key()
		if reasons := d.withheld[key]; len(reasons) > 0 {
			slices.SortFunc(reasons, byRule)
			continue
		}
		d.candidates = append(d.candidates, permit.Candidate{Request: request, Needs: needs[key], Budgets: budgetsOf[request.Pod.UID]})
	}
	return d
}

// ask evaluates one rule for the requests of its stage and files the verdicts.
func (r *Reconciler) ask(
	ctx context.Context, rule facts.RuleView, prepared *preparedRule, object *objectDecision, d *decision, needs map[string][]policy.RuleID,
) {
	requests := inStage(rule.Waiting, prepared.stage)
	result, err := r.evaluate(ctx, rule.Counts, prepared, requests)
	if err != nil && prepared.err == nil {
		object.evaluateErr = cmp.Or(object.evaluateErr, err)
		d.failed = true
	}
	object.rooms[prepared.spec.Name] = result.Room
	if prepared.budget() && r.neverPasses(ctx, rule.Counts, prepared) {
		object.neverPasses = append(object.neverPasses, prepared.spec.Name)
	}
	for _, request := range requests {
		key := request.Key()
		verdict := result.Verdicts[key]
		if err != nil {
			verdict = policy.Verdict{Code: codeOf(prepared)}
		}
		code := cmp.Or(verdict.Code, verdict.Would, policy.CodeUndefined)
		switch {
		case verdict.Outcome == policy.NeedsSlot:
			needs[key] = append(needs[key], prepared.id)
		case verdict.Outcome != policy.Passed && prepared.enforced():
			d.withheld[key] = append(d.withheld[key], reasonOf(prepared, request, code, result.Room))
		case verdict != policy.Verdict{Outcome: policy.Passed} && prepared.spec.Enforcement == appsv1alpha1.EnforcementWarn:
			d.would[key] = append(d.would[key], reasonOf(prepared, request, code, result.Room))
		}
	}
}

// evaluate asks the program about the requests that it has not answered before on the
// same facts, and about the room if it has one.
func (r *Reconciler) evaluate(ctx context.Context, counts policy.Counts, prepared *preparedRule, requests []policy.Request) (policy.Result, error) {
	if prepared.err != nil {
		return policy.Result{}, prepared.err
	}
	if len(requests) > 0 && prepared.program.VerdictsNeedCounts() {
		return prepared.program.Evaluate(ctx, prepared.stage, policy.Surroundings{Counts: counts}, requests)
	}
	known, rest := prepared.memo.recall(requests)
	if len(requests) == 0 {
		return policy.Result{}, nil
	}
	result, err := prepared.program.Evaluate(ctx, prepared.stage, policy.Surroundings{Counts: counts}, rest)
	if err != nil {
		return policy.Result{}, err
	}
	prepared.memo.remember(rest, result.Verdicts)
	maps.Copy(known, result.Verdicts)
	result.Verdicts = known
	return result, nil
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

// budgetOf returns the budget of an object with at least one enforced availability
// rule. A rule whose room is unknown has none to give.
func budgetOf(rule facts.RuleView, rules []*preparedRule, rooms map[string]*policy.Room) (permit.Budget, bool) {
	budget := permit.Budget{Object: rule.Object.Name, Slots: map[string]int{}, Live: rule.Live}
	for _, prepared := range rules {
		if !prepared.budget() {
			continue
		}
		budget.Slots[prepared.spec.Name] = 0
		if room := rooms[prepared.spec.Name]; room != nil {
			budget.Slots[prepared.spec.Name] = room.Slots
		}
	}
	return budget, len(budget.Slots) > 0
}

func codeOf(prepared *preparedRule) policy.Code {
	if prepared.err != nil {
		return policy.CodeCompileFailed
	}
	return policy.CodeEvaluationFailed
}

// reasonOf puts a verdict into words.
func reasonOf(prepared *preparedRule, request policy.Request, code policy.Code, room *policy.Room) policy.Reason {
	return policy.Reason{
		Rule: prepared.id, Kind: prepared.kind, Stage: request.Stage, Code: code,
		Message: policy.Explain(code, prepared.spec, request, room),
	}
}

// inStage are the requests of a stage, of both if it is empty.
func inStage(requests []policy.Request, stage appsv1alpha1.TransitionStage) []policy.Request {
	var in []policy.Request
	for _, request := range requests {
		if stage == "" || request.Stage == stage {
			in = append(in, request)
		}
	}
	return in
}

func byRule(a, b policy.Reason) int { return strings.Compare(a.Rule.String(), b.Rule.String()) }
