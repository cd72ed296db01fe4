package adaptertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// callsPerEmployee is the number of requests that an adapter may send for one employee in a
// reconcile while the provider throttles or fails.
const callsPerEmployee = 20

func timeCases() []caseSpec {
	stories := []caseSpec{
		{name: "late-effect", property: "a change that the provider accepted and has not applied yet is not confirmed", needs: []Kind{LateEffect}, run: lateEffect},
		{name: "stale-reads", property: "while reads are stale nothing untrue is confirmed, and repeated verbs succeed",
			needs: []Kind{StaleReads}, run: staleReads},
		{name: "restart", property: "a provider that lost its state gets all of it again", needs: []Kind{Restart}, run: restart},
		{
			name: "throttle", property: "a provider that throttles is not overloaded, and rejected requests are reported as failed",
			needs: []Kind{Throttle}, run: throttle,
		},
		{name: "drain", property: "traffic is not off while sessions are open, and no session is cut", needs: []Kind{Sessions}, run: drain},
	}
	for _, op := range everyOp() {
		stories = append(stories, caseSpec{
			name: fmt.Sprintf("%s-%s", Hang, op), property: fmt.Sprintf("a %s that hangs ends with its context, and is reported as an error", op),
			needs: []Kind{Hang}, op: op, run: func(w *scenario) { hang(w, op) },
		})
	}
	return stories
}

func lateEffect(w *scenario) {
	employees := w.serving(3)
	w.want(employees...)
	w.converge("three employees serve")
	w.Provider.Inject(w.t, Fault{Kind: LateEffect})
	employees[0].Off = true
	w.want(employees[:2]...)
	w.passesUnsettled(2)
	w.Provider.Settle(w.t)
	w.converge("one employee serves, one is off, one is gone")
	employees[0].Off = false
	w.want(employees...)
	w.passesUnsettled(2)
	w.Provider.Settle(w.t)
	w.Provider.Mend(w.t)
	w.converge("three employees serve again")
}

// passesUnsettled runs passes without settling the provider in between.
func (w *scenario) passesUnsettled(n int) {
	w.t.Helper()
	for range n {
		if _, err := w.pass(); err != nil {
			w.t.Errorf("a reconcile ended with: %v", err)
		}
	}
}

func staleReads(w *scenario) {
	employees := w.serving(4)
	w.want(employees[:3]...)
	w.converge("three employees serve")
	w.Provider.Inject(w.t, Fault{Kind: StaleReads})
	employees[0].Off = true
	w.want(employees[0], employees[1], employees[3])
	before := len(w.outcomes)
	w.passesUnsettled(3)
	for _, o := range w.outcomes[before:] {
		if len(o.failed) > 0 {
			w.t.Errorf("reads are stale, so verbs are repeated, and that fails: %v", o)
		}
	}
	w.Provider.Settle(w.t)
	w.Provider.Mend(w.t)
	w.converge("two employees serve, one is off, one is gone")
}

func restart(w *scenario) {
	w.want(w.serving(3)...)
	w.converge("three employees serve")
	w.Provider.Inject(w.t, Fault{Kind: Restart})
	w.converge("the provider has restarted, and three employees serve again")
}

func throttle(w *scenario) {
	change := w.cause(UpdateEmployees)
	change()
	p := w.mustRead()
	w.limit = w.cfg.FaultDeadline
	w.Provider.Inject(w.t, Fault{Kind: Throttle})
	calls := w.calls()
	before := len(w.outcomes)
	if err := w.act(p); err != nil {
		w.t.Fatalf("comparing: %v", err)
	}
	_, err := w.read()
	if err == nil {
		w.t.Errorf("the provider rejects every request, and reading it returns no error")
	}
	w.wantThrottled("reading", err)
	for _, o := range w.outcomes[before:] {
		if len(o.succeeded) > 0 && w.reaches(o.op) {
			w.t.Errorf("the provider rejects every request, and something is reported as succeeded: %v", o)
		}
		w.wantThrottled(string(o.op), o.err)
	}
	// The bound covers the requests for the employees, for the employer, and the two reads.
	if sent, most := w.calls()-calls, callsPerEmployee*(len(w.wanted)+3); sent > most {
		w.t.Errorf("the provider throttles and was sent %d requests; more than %d overloads it. Leave retries to the framework.", sent, most)
	}
	w.Provider.Mend(w.t)
	w.limit = w.cfg.Deadline
	w.converge("the provider has stopped throttling")
}

// wantThrottled expects an error to be one of resourceconsist.Throttled: the framework then waits, and no
// employee has failed. A call that ended at its deadline, or was put off, passes.
func (w *scenario) wantThrottled(what string, err error) {
	w.t.Helper()
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, resourceconsist.ErrBackingOff) || !w.cfg.has([]Kind{RetryAfter}, "") {
		return
	}
	w.t.Errorf("%s: the provider throttles, and the error is not one of resourceconsist.Throttled: %v", what, err)
}

func (w *scenario) reaches(op Op) bool { return w.cfg.has(nil, op) }

// calls returns how many requests were sent; always 0 when the provider does not count.
func (w *scenario) calls() int {
	w.t.Helper()
	if counter, can := w.Provider.(Counter); can {
		return counter.Calls(w.t)
	}
	return 0
}

func hang(w *scenario, op Op) {
	change := w.cause(op)
	w.Provider.Inject(w.t, Fault{Kind: Hang, Op: op})
	change()
	w.limit = w.cfg.FaultDeadline
	var errs []error
	// A deletion may begin with an operation that does not hang, and on a busy machine another
	// operation may exceed the deadline of the fault.
	for range w.cfg.Passes {
		if errs = append(errs, w.passes(1)...); w.reported(op, errs) {
			break
		}
	}
	w.wantReported(op, errs)
	w.Provider.Mend(w.t)
	w.limit = w.cfg.Deadline
	w.converge(fmt.Sprintf("%s no longer hangs", op))
}

func drain(w *scenario) {
	occupier, can := w.Provider.(Occupier)
	if !can {
		w.t.Fatalf("the provider has no Occupy: implement it, or set the reason in Config.Without[%q]", Sessions)
	}
	employees := w.serving(3)
	w.want(employees...)
	w.converge("three employees serve")
	cut := occupier.Cut(w.t)
	for _, employee := range employees[:2] {
		occupier.Occupy(w.t, w.employer, employee.Name, 3)
	}
	employees[0].Off = true
	w.want(employees[0], employees[2]) // the first is off, the second is removed
	w.passes(3)
	for _, employee := range employees[:2] {
		if actual := w.Provider.Traffic(w.t, w.employer)[employee.Name]; actual.On || actual.Sessions != 3 {
			w.t.Errorf("%s has 3 sessions and should get no new ones: the provider has %+v", employee.Name, actual)
		}
		occupier.Occupy(w.t, w.employer, employee.Name, 0)
	}
	if now := occupier.Cut(w.t); now != cut {
		w.t.Errorf("%d sessions were cut", now-cut)
	}
	w.converge("the sessions have ended: one employee serves, one is off, one is gone")
}
