package resourceconsist

import (
	"cmp"
	"context"
	"slices"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// Names of the verbs in errors and attempts.
const (
	verbCreateEmployer  = "CreateEmployer"
	verbUpdateEmployer  = "UpdateEmployer"
	verbDeleteEmployer  = "DeleteEmployer"
	verbCreateEmployees = "CreateEmployees"
	verbUpdateEmployees = "UpdateEmployees"
	verbDeleteEmployees = "DeleteEmployees"
)

// sync carries out the plan. Traffic goes off first; then it creates the items of the employer that
// employees depend on, then the items of the employees, and deletes the items of the employer last.
func (r *Reconciler) sync(ctx context.Context, s *session) {
	employees, knowEmployees := employeesDiff(s)
	employers, knowEmployers := employersDiff(s)
	adapter := r.binding.adapter
	unplanned(s, EventSyncEmployeesFailed, employees.Failed)
	unplanned(s, EventSyncEmployerFailed, employers.Failed)
	if knowEmployees {
		off := employeeVerb(ctx, s, verbUpdateEmployees, adapter.UpdateEmployees, employees.Off)
		gone := employeeVerb(ctx, s, verbDeleteEmployees, adapter.DeleteEmployees, employees.Delete)
		results := &s.employeeResults
		results.SuccUpdated, results.FailUpdated = values(off.succeeded), values(off.failed)
		results.SuccDeleted, results.FailDeleted = values(gone.succeeded), values(gone.failed)
		results.Unchanged = values(employees.Unchanged)
	}
	if knowEmployers {
		created := employerVerb(ctx, s, verbCreateEmployer, adapter.CreateEmployer, employers.Create)
		updated := employerVerb(ctx, s, verbUpdateEmployer, adapter.UpdateEmployer, employers.Update)
		results := &s.employerResults
		results.SuccCreated, results.FailCreated = values(created.succeeded), values(created.failed)
		results.SuccUpdated, results.FailUpdated = values(updated.succeeded), values(updated.failed)
		results.Unchanged = values(employers.Unchanged)
	}
	if knowEmployees {
		created := employeeVerb(ctx, s, verbCreateEmployees, adapter.CreateEmployees, employees.Create)
		updated := employeeVerb(ctx, s, verbUpdateEmployees, adapter.UpdateEmployees, employees.Update)
		results := &s.employeeResults
		results.SuccCreated, results.FailCreated = values(created.succeeded), values(created.failed)
		results.SuccUpdated = append(results.SuccUpdated, values(updated.succeeded)...)
		results.FailUpdated = append(results.FailUpdated, values(updated.failed)...)
	}
	r.confirm(ctx, s)
	if knowEmployers && r.nothingToDelete(s) {
		gone := employerVerb(ctx, s, verbDeleteEmployer, adapter.DeleteEmployer, employers.Delete)
		s.employerResults.SuccDeleted, s.employerResults.FailDeleted = values(gone.succeeded), values(gone.failed)
	} else {
		keepAttempts(s, verbDeleteEmployer, employers.Delete)
	}
}

// confirm reads the employees from the provider again if a verb was called, and derives the
// traffic of each pod from the answer. When the provider does not answer, the answer from
// before still confirms the employees for which no change was due.
func (r *Reconciler) confirm(ctx context.Context, s *session) {
	before, known := employeesDiff(s)
	if s.actor.acted {
		s.currentEmployees = readItems(ctx, r, s, readingEmployees("GetCurrentEmployee", EventGetCurrentEmployeesFailed, r.binding.adapter.GetCurrentEmployee))
	}
	s.traffic = plan.Traffic{}
	if after, answered := employeesDiff(s); answered {
		s.traffic = plan.ClassifyTraffic(after)
		return
	}
	if known {
		// The item of an employee that was missing may exist by now.
		before.Update, before.Create = slices.Concat(before.Update, before.Create), nil
		s.traffic = plan.ClassifyTraffic(before)
	}
}

// nothingToDelete reports whether no employee is left to delete. Items of the employer,
// such as an address, are deleted only then.
func (r *Reconciler) nothingToDelete(s *session) bool {
	diff, known := employeesDiff(s)
	return known && len(diff.Delete) == 0
}

// employeesDiff returns the difference between the expected and the current employees, without items that are kept.
func employeesDiff(s *session) (plan.Diff[IEmployee], bool) {
	if s.expectedEmployees == nil || s.currentEmployees == nil {
		return plan.Diff[IEmployee]{}, false
	}
	diff := plan.Between(*s.expectedEmployees, *s.currentEmployees, equalEmployees)
	diff.Delete = slices.DeleteFunc(diff.Delete, func(item plan.Item[IEmployee]) bool { return s.kept[item.Name] })
	return diff, true
}

func employersDiff(s *session) (plan.Diff[IEmployer], bool) {
	if s.expectedEmployers == nil || s.currentEmployers == nil {
		return plan.Diff[IEmployer]{}, false
	}
	return plan.Between(*s.expectedEmployers, *s.currentEmployers, equalEmployers), true
}

func employerVerb(ctx context.Context, s *session, name string, f do[IEmployer], items []plan.Item[IEmployer]) outcome[IEmployer] {
	return run(ctx, s.actor, verb[IEmployer]{name: name, call: f, items: items, id: func(e IEmployer) string {
		if e == nil {
			return ""
		}
		return e.GetEmployerId()
	}})
}

func employeeVerb(ctx context.Context, s *session, name string, f do[IEmployee], items []plan.Item[IEmployee]) outcome[IEmployee] {
	return run(ctx, s.actor, verb[IEmployee]{name: name, call: f, items: items, id: func(e IEmployee) string {
		if e == nil {
			return ""
		}
		return e.GetEmployeeId()
	}})
}

// unplanned reports the items for which nothing can be decided.
func unplanned[T any](s *session, reason string, failed []plan.Failure[T]) {
	for _, one := range failed {
		s.unplanned = append(s.unplanned, EmployeeError{Name: cmp.Or(one.Item.Name, one.Item.ID), Times: 1, Err: one.Err, reason: reason})
	}
}

// keepAttempts marks attempts that were not made in this reconcile and will be made later.
func keepAttempts[T any](s *session, name string, items []plan.Item[T]) {
	for _, item := range items {
		s.actor.attempts[attempt{name, item.ID}] = true
	}
}

func values[T any](items []plan.Item[T]) []T {
	var list []T
	for _, item := range items {
		list = append(list, item.Value)
	}
	return list
}
