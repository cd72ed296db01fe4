package evaluation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Modules has the evaluations of users' modules in one round. Two rules may have one name: a preview shows each stage.
type Modules map[*preparedRule]*moduleRun

// moduleRun is the evaluation of one rule with a user's module in one round.
type moduleRun struct {
	prepared *preparedRule
	view     podindex.RuleView
	env      rule.Environment
	program  Program

	// recalled has the verdicts.
	recalled *Recollection

	// unopened reports whether the round had no memory to evaluate the module.
	unopened bool

	// stopped: the rule was under quarantine when the round began.
	stopped bool

	// open are the positions of the requests that have not been evaluated, by their keys.
	open map[string]int

	// unreached are the verdicts of open requests that the evaluation did not reach.
	unreached map[string]rule.Verdict

	// turned is the first request of the round, once the module was evaluated: it has had its turn even if
	// it is still open.
	turned string

	// late is the number of evaluations that used up their CPU time, memory or stack without a verdict, and lateBecause the
	// message of the last one.
	late        int
	lateBecause string
	err         error
}

// firstChunk is the number of requests for which all modules are evaluated before the round continues
// with the next requests. It grows while there is time, and shrinks to one pod when there is little: a
// pod is permitted by the verdicts of all modules in one round.
const firstChunk = 32

// EvaluateModules evaluates the users' modules of a round for the requests whose verdicts are not
// remembered: one pod after the other, first the pods for which earlier rounds had no time. Requests that
// are not reached before the round gives way are withheld until a later round.
func (e *Evaluator) EvaluateModules(ctx context.Context, t *Turn, snapshot Snapshot, now time.Time) Modules {
	modules, waiting := Modules{}, snapshot.Waiting
	runs := e.openRuns(ctx, t, snapshot, now, modules)
	order := evaluationOrder(runs, waiting)
	first, size := slices.Concat(order, []string{""})[0], firstChunk
	for len(order) > 0 && t.goesOn(ctx, partForModules) {
		chunk := order[:min(size, len(order))]
		slice, stop := t.slice(ctx)
		for _, run := range runs {
			used := run.evaluate(slice, chunk)
			t.charge(used)
			if used > 0 {
				run.turned = first
			}
		}
		left := slices.DeleteFunc(slices.Clone(chunk), func(key string) bool { return !isOpen(runs, key) })
		expired := slice.Err() != nil
		stop()
		order = order[len(chunk):]
		switch {
		case len(left) == 0:
			size *= 2
			continue
		case !expired && len(left) == len(chunk):
			continue // waiting does not help: an earlier evaluation still runs
		}
		order, size = slices.Concat(left, order), max(1, size/2)
	}
	for _, run := range runs {
		run.close()
	}
	return modules
}

// openRuns adds the evaluation of all users' modules, and returns the runs with open requests.
func (e *Evaluator) openRuns(ctx context.Context, t *Turn, snapshot Snapshot, now time.Time, modules Modules) []*moduleRun {
	var open []*moduleRun
	for _, view := range snapshot.Rules {
		env := newEnvironment(snapshot, view, now)
		for _, prepared := range snapshot.prepared[view.Object.Name] {
			if prepared.kind != rule.KindRego {
				continue
			}
			run := &moduleRun{
				prepared: prepared, view: view, env: env, program: prepared.program, stopped: prepared.quarantined != nil,
				unreached: map[string]rule.Verdict{},
			}
			if run.stopped {
				if prepared.fallback == nil {
					prepared.fallback = fallback(ctx, e.engine, prepared.id.Ruleset, prepared.spec)
				}
				run.program = prepared.fallback
			}
			if run.program == nil || run.program.Needs().Namespace && env.Namespace.Labels == nil {
				continue
			}
			modules[prepared] = run
			if run.begin(t); len(run.open) > 0 {
				open = append(open, run)
			}
		}
	}
	return open
}

// begin finds the requests to evaluate, if the round has the memory for them.
func (m *moduleRun) begin(t *Turn) {
	requests, recalled := inStage(m.view.Waiting, m.prepared.stage), m.prepared.recall()
	if len(requests) > 0 && !t.holds(recalled.bytes()+int64(len(requests)*openBytes)) {
		m.unopened, t.Cause = true, cmp.Or(t.Cause, CauseMemory)
		return
	}
	m.recalled = recalled
	m.opens(recalled.open(newScope(m.program), m.stopped, m.env, requests, m.view.WaitingVersion))
}

// opens keeps the requests to evaluate. A request of a reserved pod is left out if the rule reads
// permits or other pods, because the input would contain the permit of the pod itself. permit.Next
// evaluates the rule for it.
func (m *moduleRun) opens(positions []int) {
	needs, recalled := m.program.Needs(), m.recalled
	for _, i := range positions {
		_, reserved := m.view.Live[recalled.requests[i].Pod.UID]
		if reserved && m.prepared.enforced() && (needs.Pods || needs.Permits) {
			recalled.set(i, rule.Verdict{Outcome: rule.Passed})
			continue
		}
		if m.open == nil {
			m.open = make(map[string]int, len(positions))
		}
		m.open[recalled.requests[i].Key()] = i
	}
}

// evaluationOrder returns the keys of all requests with an open verdict: first the requests that were not
// reached for the most rounds, and among equals the oldest.
func evaluationOrder(runs []*moduleRun, waiting []rule.Request) []string {
	missed := map[string]int{}
	for _, run := range runs {
		for key, i := range run.open {
			missed[key] = max(missed[key], run.recalled.notes[i].missed)
		}
	}
	if len(missed) == 0 {
		return nil
	}
	order := make([]string, 0, len(missed))
	for _, request := range waiting {
		key := request.Key()
		if _, is := missed[key]; is {
			order = append(order, key)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(missed[b], missed[a]) })
	return order
}

func isOpen(runs []*moduleRun, key string) bool {
	return slices.ContainsFunc(runs, func(run *moduleRun) bool {
		_, open := run.open[key]
		return open
	})
}

// evaluate evaluates the module for the requests that are open, and returns the CPU time that it used.
func (m *moduleRun) evaluate(ctx context.Context, keys []string) time.Duration {
	var evaluated []rule.Request
	for _, key := range keys {
		if i, ok := m.open[key]; ok {
			evaluated = append(evaluated, m.recalled.requests[i])
		}
	}
	if len(evaluated) == 0 {
		return 0
	}
	result, err := m.program.Evaluate(ctx, m.prepared.stage, m.env, evaluated)
	m.err = cmp.Or(m.err, err)
	for _, request := range evaluated {
		key := request.Key()
		verdict := result.Verdicts[key]
		if err != nil {
			verdict = rule.Verdict{Code: rule.CodeEvaluationFailed, Message: text.Prefix(err.Error(), rule.MaxMessageBytes)}
		}
		switch cmp.Or(verdict.Code, verdict.Would) {
		case rule.CodeNotReached:
			m.unreached[key] = verdict
			continue
		case rule.CodeTimeout:
			m.late, m.lateBecause = m.late+1, verdict.Message
		default: // a verdict
		}
		m.recalled.set(m.open[key], verdict)
		delete(m.open, key)
	}
	return result.CPUTime
}

// close withholds the requests that were not reached.
func (m *moduleRun) close() {
	for key, i := range m.open {
		m.recalled.miss(i, cmp.Or(m.unreached[key], notReached(m.prepared)))
		if key == m.turned {
			m.recalled.notes[i].missed = 0
		}
	}
	m.recalled.settle()
}

// notReached returns the verdict of a rule for which a round had no time.
func notReached(prepared *preparedRule) rule.Verdict {
	if prepared.enforced() {
		return rule.Verdict{Code: rule.CodeNotReached}
	}
	return rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNotReached}
}
