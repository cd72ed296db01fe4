package adaptertest

import (
	"fmt"
	"slices"
)

// failureCases returns a case for each operation that fails as a whole, fails for one
// employee, or loses its reply.
func failureCases() []caseSpec {
	var stories []caseSpec
	add := func(kind Kind, property string, run func(w *scenario, op Op), ops ...Op) {
		for _, op := range ops {
			stories = append(stories, caseSpec{
				name: fmt.Sprintf("%s-%s", kind, op), property: fmt.Sprintf(property, op), needs: []Kind{kind}, op: op,
				run: func(w *scenario) { run(w, op) },
			})
		}
	}
	add(Fail, "a failing %s is reported as an error, confirms nothing, and succeeds later", failing, everyOp()...)
	add(FailOne, "%s fails for one employee: the error names it, and the others are changed", partial, CreateEmployees, UpdateEmployees, DeleteEmployees)
	add(LostReply, "%s takes effect and its reply is lost: the adapter finds the actual state", lostReply,
		CreateEmployer, UpdateEmployer, DeleteEmployer, CreateEmployees, UpdateEmployees, DeleteEmployees)
	return stories
}

func everyOp() []Op {
	return []Op{ReadEmployer, CreateEmployer, UpdateEmployer, DeleteEmployer, ReadEmployees, CreateEmployees, UpdateEmployees, DeleteEmployees}
}

// cause prepares a state in which change makes the next passes call the operation.
func (w *scenario) cause(op Op) (change func()) {
	w.t.Helper()
	employees := w.serving(3)
	if op == CreateEmployer || op == CreateEmployees {
		return func() { w.want(employees...) }
	}
	w.want(employees...)
	w.converge("three employees serve")
	switch op {
	case UpdateEmployer:
		return w.changeEmployer
	case DeleteEmployer:
		return w.dismiss
	case DeleteEmployees:
		return func() { w.want(employees[1:2]...) }
	default:
		for i := range employees {
			employees[i] = w.cfg.Updated(employees[i])
		}
		return func() { w.want(employees...) }
	}
}

func failing(w *scenario, op Op) {
	change := w.cause(op)
	w.Provider.Inject(w.t, Fault{Kind: Fail, Op: op})
	change()
	errs := w.passes(3)
	w.wantReported(op, errs)
	w.Provider.Mend(w.t)
	w.converge(fmt.Sprintf("%s works again", op))
}

// reported returns whether a failure of the operation was reported: by an error of a read, or by
// a verb that names the failed items.
func (w *scenario) reported(op Op, errs []error) bool {
	if op == ReadEmployer || op == ReadEmployees {
		return len(errs) > 0
	}
	return len(w.failuresFor(op)) > 0
}

// wantReported expects a failure of the operation to be reported.
func (w *scenario) wantReported(op Op, errs []error) {
	w.t.Helper()
	switch {
	case w.reported(op, errs):
	case op == ReadEmployer || op == ReadEmployees:
		w.t.Errorf("%s failed at the provider, and the adapter returned no error: an empty answer means that all traffic is off", op)
	default:
		w.t.Errorf("%s failed at the provider, and no verb reported a failure: %v", op, w.outcomes)
	}
}

func partial(w *scenario, op Op) {
	change := w.cause(op)
	struck := w.employer + "-0"
	w.Provider.Inject(w.t, Fault{Kind: FailOne, Op: op, Employee: struck})
	change()
	const passes = 3
	calls := w.calls()
	w.passes(passes)
	if sent, most := w.calls()-calls, passes*callsPerEmployee*(len(w.known)+3); sent > most {
		w.t.Errorf("%s failed for one employee, and the provider was sent %d requests; want at most %d. Leave retries to the framework.", op, sent, most)
	}
	failures := w.failuresFor(op)
	if len(failures) == 0 {
		w.t.Errorf("%s failed for %s, and no verb reported a failure: %v", op, struck, w.outcomes)
	}
	for _, failure := range failures {
		for _, id := range failure.failed {
			if failure.names[id] != struck {
				w.t.Errorf("%s failed for %s alone, and %s is reported as failed, too: %v", op, struck, failure.names[id], failure)
			}
		}
	}
	truth := w.Provider.Traffic(w.t, w.employer)
	for _, name := range slices.DeleteFunc(w.names(), func(name string) bool { return name == struck }) {
		wanted, actual := w.wanted[name], truth[name]
		if serves := wanted.Name != "" && wanted.serves(); serves != actual.On {
			w.t.Errorf("%s failed for %s alone, and %s was not changed: the provider has %+v, wanted is %+v", op, struck, name, actual, wanted)
		}
	}
	w.Provider.Mend(w.t)
	w.converge(fmt.Sprintf("%s works for all employees again", op))
}

func lostReply(w *scenario, op Op) {
	change := w.cause(op)
	w.Provider.Inject(w.t, Fault{Kind: LostReply, Op: op})
	change()
	w.passes(3)
	w.Provider.Mend(w.t)
	for _, failure := range w.failuresFor(op) {
		if again := failure.again(); len(again.failed) > 0 {
			w.t.Errorf("%s took effect though its reply was lost, and fails when it is repeated: %v", op, again.err)
		}
	}
	w.converge(fmt.Sprintf("replies of %s arrive again", op))
	if w.dismissed {
		w.untilRemains("the employer is being deleted", nil)
	}
}
