package adaptertest

import (
	"slices"
	"strings"
	"testing"
)

// Case is one case of the suite.
type Case struct {
	// Name is stable. It is the name of the subtest.
	Name string
	// Property states the property that holds when the case passes.
	Property string
	// Run runs the case with a fixture of its own.
	Run func(t testing.TB)
}

// caseSpec is a case before its Config is known.
type caseSpec struct {
	name, property string
	// needs lists the kinds, and op the operation, that the case requires.
	needs []Kind
	op    Op
	run   func(w *scenario)
}

// Run runs every case that the Config supports as a subtest, and logs the cases that are
// left out.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	cases, err := Cases(cfg)
	if err != nil {
		t.Fatalf("running the suite: %v", err)
	}
	for _, kind := range kinds() {
		if reason, without := cfg.Without[kind]; without {
			t.Logf("without %s: %s", kind, reason)
		}
	}
	for _, op := range everyOp() {
		if left := cfg.leftOutWithout(op); len(left) > 0 {
			t.Logf("without %s in Config.Ops: %d of %d cases are left out: %s", op, len(left), len(stories()), strings.Join(left, ", "))
		}
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(t) })
	}
}

// leftOutWithout returns the names of the cases that need an operation which Config.Ops lacks.
func (c Config) leftOutWithout(op Op) []string {
	var names []string
	for _, s := range stories() {
		if s.op == op && !slices.Contains(c.Ops, op) {
			names = append(names, s.name)
		}
	}
	return names
}

// Cases returns the cases that a Config supports, in the order in which they run. It fails
// when the Config is incomplete.
func Cases(cfg Config) ([]Case, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, s := range stories() {
		if !cfg.has(s.needs, s.op) {
			continue
		}
		cases = append(cases, Case{Name: s.name, Property: s.property, Run: func(t testing.TB) {
			t.Helper()
			s.run(newScenario(t, cfg))
		}})
	}
	return cases, nil
}

func stories() []caseSpec {
	return slices.Concat(shapeCases(), changeCases(), employerCases(), sharedCases(), failureCases(), timeCases())
}

// converge reconciles until the state is as wanted, and ends the case when that never
// happens. Without a fault, no verb may fail finally.
func (w *scenario) converge(what string) {
	w.t.Helper()
	var settled bool
	var err error
	for range w.cfg.Passes {
		if settled, err = w.settledPass(); settled {
			return
		}
	}
	if err != nil {
		w.t.Fatalf("%s: not reached after %d reconciles, the last of which ended with: %v", what, w.cfg.Passes, err)
	}
	w.t.Fatalf("%s: not reached after %d reconciles. Wanted: %+v. The provider has: %+v. The last verbs: %v",
		what, w.cfg.Passes, w.wanted, w.Provider.Traffic(w.t, w.employer), w.outcomes[max(0, len(w.outcomes)-4):])
}

// settledPass runs a pass, waits for the provider to settle, and then checks that every
// verb that succeeded took effect.
func (w *scenario) settledPass() (settled bool, err error) {
	w.t.Helper()
	first := len(w.outcomes)
	settled, err = w.pass()
	w.Provider.Settle(w.t)
	w.checkSucceeded(w.outcomes[first:])
	return settled, err
}

// passes runs a few passes under a fault. They need not succeed; they must not confirm
// anything untrue.
func (w *scenario) passes(n int) (errs []error) {
	w.t.Helper()
	for range n {
		if _, err := w.settledPass(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkSucceeded compares the employees that verbs counted as succeeded with the provider.
// Sessions may still be open there; new requests may not arrive.
func (w *scenario) checkSucceeded(outcomes []outcome) {
	w.t.Helper()
	truth := w.Provider.Traffic(w.t, w.employer)
	for _, o := range outcomes {
		for _, id := range o.succeeded {
			name := o.names[id]
			wanted, selected := w.wanted[name]
			serves := selected && wanted.serves()
			actual := truth[name]
			switch {
			case name == "" || !w.known[name]:
			case o.op == DeleteEmployees && actual.On && !serves: // an employee that serves may have had a predecessor of the same name
				w.t.Errorf("DeleteEmployees counts %s as succeeded, and the provider still has %+v", name, actual)
			case o.op != DeleteEmployees && selected && serves != actual.On:
				w.t.Errorf("%s counts %s as succeeded, and the provider has %+v; wanted is %+v", o.op, name, actual, wanted)
			}
		}
	}
}

// replay repeats every past call of an operation's verbs, which must have no effect.
func (w *scenario) replay(op Op) {
	w.t.Helper()
	before := len(w.outcomes)
	for _, o := range slices.Clone(w.outcomes) {
		if o.op != op || len(o.failed) > 0 {
			continue
		}
		if again := o.again(); len(again.failed) > 0 {
			w.t.Errorf("%s fails when it is repeated: %v", op, again.err)
		}
	}
	if len(w.outcomes) == before {
		w.t.Fatalf("%s was never called, so there is nothing to repeat: remove it from Config.Ops if the adapter does not call the provider for it", op)
	}
}

// failuresFor returns the outcomes of an operation in which something failed.
func (w *scenario) failuresFor(op Op) []outcome {
	return slices.DeleteFunc(slices.Clone(w.outcomes), func(o outcome) bool { return o.op != op || len(o.failed) == 0 })
}
