package evaluation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/memo"
	"github.com/podops-dev/podops/pkg/text"
)

// moduleRun is the evaluation of one rule with a user's module in one round.
type moduleRun struct {
	work    *ruleWork
	program Program
	memo    *memo.Memo

	// stopped: the rule was under quarantine when the round began.
	stopped bool

	requests []rule.Request

	// verdicts of the requests; shared with the memo when nothing is to be evaluated.
	verdicts []rule.Verdict

	// open are the positions of the requests that have not been evaluated, by their keys.
	open map[string]int

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

// evaluateModules evaluates the users' modules of a round for the requests whose verdicts are not
// remembered: one pod after the other, first the pods for which earlier rounds had no time. Requests that
// are not reached before the round gives way are withheld until a later round.
func (e *Evaluator) evaluateModules(ctx context.Context, w *evaluating, waiting []rule.Request) {
	t, runs := w.turn, e.openRuns(ctx, w)
	order := orderOf(runs, waiting)
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
}

// openRuns prepares the evaluation of all users' modules, and returns the runs with open requests.
func (e *Evaluator) openRuns(ctx context.Context, w *evaluating) []*moduleRun {
	var open []*moduleRun
	for _, work := range w.rules {
		if work.prepared.kind != rule.KindRego {
			continue
		}
		run := e.runOf(ctx, w, work)
		if run == nil {
			work.close()
			continue
		}
		work.run = run
		if len(run.open) > 0 {
			open = append(open, run)
		}
	}
	return open
}

// runOf returns the evaluation of a rule; nil when it has no program.
func (e *Evaluator) runOf(ctx context.Context, w *evaluating, work *ruleWork) *moduleRun {
	prepared, remembered := work.prepared, work.open()
	run := &moduleRun{
		work: work, program: prepared.program, memo: remembered.memo, stopped: prepared.quarantined != nil,
		requests: inStage(work.ruleset.View.Waiting, prepared.stage),
	}
	if run.stopped {
		if prepared.fallback == nil {
			prepared.fallback = e.fallback(ctx, prepared.id.Ruleset, prepared.spec)
		}
		run.program, run.memo = prepared.fallback, remembered.fallback
	}
	if run.program == nil || run.program.Needs().Namespace && work.env.Namespace.Labels == nil {
		return nil
	}
	if len(run.requests) == 0 {
		run.memo.Remember(nil, nil, work.env, 0)
		remembered.lastDenials = nil
		return run
	}
	if !w.turn.holds(remembered.bytes() + int64(len(run.requests)*openBytes)) {
		work.unopened, w.turn.Cause = true, cmp.Or(w.turn.Cause, CauseMemory)
		return nil
	}
	var open []int
	run.verdicts, open = run.memo.Recall(scopeOf(run.program, prepared.kind), work.env, run.requests, work.ruleset.View.WaitingVersion)
	run.opens(open)
	return run
}

// opens keeps the requests to evaluate. A request of a reserved pod is left out if the rule reads
// permits or other pods, because the input would contain the permit of the pod itself. permit.Next
// evaluates the rule for it.
func (m *moduleRun) opens(positions []int) {
	needs := m.program.Needs()
	for _, i := range positions {
		_, reserved := m.work.ruleset.View.Live[m.requests[i].Pod.UID]
		if reserved && m.work.prepared.enforced() && (needs.Pods || needs.Permits) {
			m.verdicts[i] = rule.Verdict{Outcome: rule.Passed}
			continue
		}
		if m.open == nil {
			m.open = make(map[string]int, len(positions))
		}
		m.open[m.requests[i].Key()] = i
	}
}

// orderOf returns the keys of all requests with an open verdict: first the requests that were not
// reached for the most rounds, and among equals the oldest.
func orderOf(runs []*moduleRun, waiting []rule.Request) []string {
	missed := map[string]int{}
	for _, run := range runs {
		for key := range run.open {
			missed[key] = max(missed[key], run.work.open().lastDenials[key].missed)
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
			evaluated = append(evaluated, m.requests[i])
		}
	}
	if len(evaluated) == 0 {
		return 0
	}
	result, err := m.program.Evaluate(ctx, m.work.prepared.stage, m.work.env, evaluated)
	m.err = cmp.Or(m.err, err)
	for _, request := range evaluated {
		key := request.Key()
		verdict := result.Verdicts[key]
		if err != nil {
			verdict = rule.Verdict{Code: rule.CodeEvaluationFailed, Message: text.Prefix(err.Error(), rule.MaxMessageBytes)}
		}
		m.verdicts[m.open[key]] = verdict
		switch cmp.Or(verdict.Code, verdict.Would) {
		case rule.CodeNotReached:
			continue
		case rule.CodeTimeout:
			m.late, m.lateBecause = m.late+1, verdict.Message
		default: // a verdict
		}
		delete(m.open, key)
	}
	return result.CPUTime
}

// close withholds the requests that were not reached, and keeps the verdicts. A request that was not
// reached keeps the denial of an earlier round: no request passes because of an old verdict.
func (m *moduleRun) close() {
	prepared, remembered := m.work.prepared, m.work.open()
	for _, i := range m.open {
		if m.verdicts[i] == (rule.Verdict{}) {
			m.verdicts[i] = notReached(prepared)
		}
	}
	m.memo.Remember(m.requests, m.verdicts, m.work.env, m.work.ruleset.View.WaitingVersion)
	final, next := make([]rule.Verdict, len(m.verdicts)), lastDenials{}
	for i, request := range m.requests {
		key := request.Key()
		final[i] = next.take(key, m.verdicts[i], remembered.lastDenials)
		if last := next[key]; key == m.turned && last.missed > 0 {
			last.missed = 0
			next[key] = last
		}
	}
	m.verdicts, remembered.lastDenials = final, next
	if m.stopped {
		remembered.lastDenials = nil // verdicts of the fallback are no denials of the module
	}
}

// notReached returns the verdict of a rule for which a round had no time.
func notReached(prepared *preparedRule) rule.Verdict {
	if prepared.enforced() {
		return rule.Verdict{Code: rule.CodeNotReached}
	}
	return rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNotReached}
}
