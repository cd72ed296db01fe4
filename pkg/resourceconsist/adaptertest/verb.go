package adaptertest

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// outcome is the result of one verb call. The lists hold ids, sorted, and together
// they are complete.
type outcome struct {
	op                Op
	succeeded, failed []string
	err               error
	names             map[string]string // of employees, by id
	again             func() outcome    // the same call once more
}

// verb is one method of an adapter that changes something.
type verb[T any] struct {
	op   Op
	name string
	id   func(T) string
	// employee is the name of the employee; empty for employers.
	employee func(T) string
	call     func(ctx context.Context, employer client.Object, items []T) ([]T, []T, error)
}

func (w *scenario) employerVerb(op Op) verb[resourceconsist.IEmployer] {
	v := verb[resourceconsist.IEmployer]{op: op, id: resourceconsist.IEmployer.GetEmployerId, employee: func(resourceconsist.IEmployer) string { return "" }}
	switch op {
	case CreateEmployer:
		v.name, v.call = "CreateEmployer", w.Adapter.CreateEmployer
	case UpdateEmployer:
		v.name, v.call = "UpdateEmployer", w.Adapter.UpdateEmployer
	default:
		v.name, v.call = "DeleteEmployer", w.Adapter.DeleteEmployer
	}
	return v
}

func (w *scenario) employeeVerb(op Op) verb[resourceconsist.IEmployee] {
	v := verb[resourceconsist.IEmployee]{op: op, id: resourceconsist.IEmployee.GetEmployeeId, employee: resourceconsist.IEmployee.GetEmployeeName}
	switch op {
	case CreateEmployees:
		v.name, v.call = "CreateEmployees", w.Adapter.CreateEmployees
	case UpdateEmployees:
		v.name, v.call = "UpdateEmployees", w.Adapter.UpdateEmployees
	default:
		v.name, v.call = "DeleteEmployees", w.Adapter.DeleteEmployees
	}
	return v
}

// do calls a verb and checks its result against the contract of ReconcileAdapter.
func do[T any](w *scenario, v verb[T], items []T) outcome {
	w.t.Helper()
	object := w.object()
	before := object.DeepCopyObject()
	passed := slices.Clone(items)
	var succeeded, failed []T
	var err error
	w.within(v.name, func(ctx context.Context) { succeeded, failed, err = v.call(ctx, object, passed) })

	ids := collectIDs(items, v.id)
	if !slices.Equal(collectIDs(passed, v.id), ids) {
		w.t.Errorf("%s changed the list that was passed", v.name)
	}
	if !equality.Semantic.DeepEqual(before, object) {
		w.t.Errorf("%s changed the employer that was passed", v.name)
	}
	result := outcome{op: v.op, succeeded: collectIDs(succeeded, v.id), failed: collectIDs(failed, v.id), err: err, names: map[string]string{}}
	for _, item := range items {
		result.names[v.id(item)] = v.employee(item)
	}
	switch {
	case len(succeeded)+len(failed) > 0:
	case err != nil:
		result.failed = ids
	default:
		result.succeeded = ids
	}
	if fault := result.fault(ids); fault != "" {
		w.t.Errorf("%s of %q: %s (succeeded: %q, failed: %q, error: %v)", v.name, ids, fault, result.succeeded, result.failed, err)
	}
	result.again = func() outcome { return do(w, v, items) }
	w.outcomes = append(w.outcomes, result)
	return result
}

// fault names the violation of the contract by the lists; empty without a violation.
func (o outcome) fault(ids []string) string {
	both := slices.Sorted(slices.Values(slices.Concat(o.succeeded, o.failed)))
	switch {
	case !slices.Equal(slices.Compact(slices.Clone(both)), both):
		return "an id is named twice"
	case !slices.Equal(both, slices.Sorted(slices.Values(ids))):
		return "the lists together are not the list that was passed"
	case len(o.failed) > 0 && o.err == nil:
		return "something failed without an error"
	case len(o.failed) == 0 && o.err != nil:
		return "there is an error and nothing failed"
	default:
		return ""
	}
}

func (o outcome) String() string {
	return fmt.Sprintf("%s: succeeded %q, failed %q, error %v", o.op, o.succeeded, o.failed, o.err)
}

func collectIDs[T any](items []T, id func(T) string) []string {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = id(item)
	}
	slices.Sort(ids)
	return ids
}
