package adaptertest

import (
	"context"
	"slices"
	"sync"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

func changeCases() []caseSpec {
	return []caseSpec{
		{name: "create", property: "employees that should take traffic get it", run: create},
		{name: "create-again", property: "a repeated creation succeeds and changes nothing", op: CreateEmployees, run: createAgain},
		{name: "update", property: "traffic goes off and comes on again as wanted", run: update},
		{name: "update-again", property: "a repeated update succeeds and changes nothing", op: UpdateEmployees, run: updateAgain},
		{name: "update-weight", property: "a changed weight reaches the provider", needs: []Kind{Weights}, run: updateWeight},
		{name: "update-address", property: "a pod that is created again under its name with another address gets traffic there", run: updateAddress},
		{name: "late-address", property: "a pod without an address has no traffic, and gets traffic once it has an address", run: lateAddress},
		{name: "delete", property: "employees that are no longer selected lose their traffic, and the provider keeps nothing of them", run: remove},
		{name: "delete-again", property: "a repeated deletion succeeds", op: DeleteEmployees, run: deleteAgain},
		{name: "terminating", property: "a pod that is being deleted loses its traffic", run: terminating},
		{name: "parallel", property: "verbs for different employees at the same time do not undo each other", run: parallel},
	}
}

func create(w *scenario) {
	w.want(w.serving(3)...)
	w.converge("three employees serve")
}

func createAgain(w *scenario) {
	create(w)
	w.replay(CreateEmployees)
	w.converge("three employees still serve")
	wantUnique(w, "current", collectIDs(w.mustRead().current, resourceconsist.IEmployee.GetEmployeeId))
}

func update(w *scenario) {
	employees := w.serving(3)
	w.want(employees...)
	w.converge("three employees serve")
	employees[0].Off = true
	w.want(employees...)
	w.converge("the first of three employees is off")
	employees[0].Off = false
	w.want(employees...)
	w.converge("three employees serve again")
}

func updateAgain(w *scenario) {
	change := w.cause(UpdateEmployees)
	change()
	w.converge("three employees are updated")
	w.replay(UpdateEmployees)
	w.converge("three employees are still updated")
}

func updateWeight(w *scenario) {
	employees := w.serving(2)
	employees[0].Weight, employees[1].Weight = 10, 10
	w.want(employees...)
	w.converge("two employees of weight 10 serve")
	employees[0].Weight = 50
	w.want(employees...)
	w.converge("the first employee has weight 50")
}

func updateAddress(w *scenario) {
	employees := w.serving(2)
	w.want(employees...)
	w.converge("two employees serve")
	employees[0].Address = w.cfg.Addresses[3]
	w.want(employees...)
	w.converge("the first employee serves at another address")
}

func lateAddress(w *scenario) {
	employees := w.serving(2)
	address := employees[1].Address
	employees[1].Address, employees[1].Off = "", true
	w.want(employees...)
	w.converge("the first of two employees serves, the other has no address")
	employees[1].Address, employees[1].Off = address, false
	w.want(employees...)
	w.converge("both employees serve")
}

func remove(w *scenario) {
	employees := w.serving(3)
	w.want(employees[0])
	w.converge("one employee serves")
	alone := w.remains()
	w.want(employees...)
	w.converge("three employees serve")
	w.want(employees[0])
	w.converge("two employees are gone")
	w.untilRemains("two employees are gone", alone)
}

// remains returns the names of the items that the provider holds, sorted.
func (w *scenario) remains() []string {
	w.t.Helper()
	return slices.Sorted(slices.Values(w.Provider.Remains(w.t, w.employer)))
}

// untilRemains reconciles until the provider holds exactly the given items.
func (w *scenario) untilRemains(what string, want []string) {
	w.t.Helper()
	for range w.cfg.Passes {
		if slices.Equal(w.remains(), want) {
			return
		}
		w.passes(1)
	}
	if got := w.remains(); !slices.Equal(got, want) {
		w.t.Errorf("%s: the provider still holds %q, and should hold %q", what, got, want)
	}
}

func deleteAgain(w *scenario) {
	employees := w.serving(3)
	w.want(employees...)
	w.converge("three employees serve")
	w.want(employees[0])
	w.converge("two employees are gone")
	w.replay(DeleteEmployees)
	w.converge("one employee still serves, two are gone")
}

func terminating(w *scenario) {
	employees := w.serving(2)
	w.want(employees...)
	w.converge("two employees serve")
	employees[0].Terminating = true
	w.want(employees...)
	w.converge("the first of two employees terminates")
}

// parallel creates each employee in a call of its own, all at the same time, and then turns
// each off in the same way.
func parallel(w *scenario) {
	w.want()
	w.converge("there is an employer without employees")
	employees := w.serving(4)
	w.want(employees...)
	w.inParallel()
	w.converge("four employees serve")
	for i := range employees {
		employees[i].Off = true
	}
	w.want(employees...)
	w.inParallel()
	w.converge("four employees are off")
}

// inParallel carries out the changes of employees, each in a call of its own. Every change
// that succeeded must be in effect when all calls have returned.
func (w *scenario) inParallel() {
	w.t.Helper()
	todo, err := w.mustRead().employees()
	if err != nil {
		w.t.Fatalf("comparing the expected and the current items: %v", err)
	}
	object := w.object()
	verbs := []verb[resourceconsist.IEmployee]{w.employeeVerb(DeleteEmployees), w.employeeVerb(UpdateEmployees), w.employeeVerb(CreateEmployees)}
	var calls []func(ctx context.Context) outcome
	for i, items := range [][]plan.Item[resourceconsist.IEmployee]{todo.Delete, slices.Concat(todo.Off, todo.Update), todo.Create} {
		for _, item := range itemValues(items) {
			calls = append(calls, func(ctx context.Context) outcome {
				_, failed, err := verbs[i].call(ctx, object, []resourceconsist.IEmployee{item})
				o := outcome{op: verbs[i].op, err: err, names: map[string]string{item.GetEmployeeId(): item.GetEmployeeName()}}
				if err == nil && len(failed) == 0 {
					o.succeeded = []string{item.GetEmployeeId()}
				}
				return o
			})
		}
	}
	outcomes := make([]outcome, len(calls))
	w.within("a verb for each employee at the same time", func(ctx context.Context) {
		var wg sync.WaitGroup
		for i, call := range calls {
			wg.Go(func() { outcomes[i] = call(ctx) })
		}
		wg.Wait()
	})
	w.Provider.Settle(w.t)
	w.checkSucceeded(outcomes)
}
