package resourceconsist

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// report tells people what failed: in events, in metrics, and in what the adapter records.
func (r *Reconciler) report(ctx context.Context, s *session) {
	all := s.failures()
	s.memory.shown = r.measures.show(s.key, s.memory.shown, all)
	for _, reason := range []string{EventSyncEmployerFailed, EventSyncEmployeesFailed} {
		named := slices.DeleteFunc(slices.Clone(all), func(e EmployeeError) bool { return e.reason != reason })
		if len(named) > 0 {
			s.fail(reason, &SyncError{Employees: named})
		}
	}
	var errs []error
	for _, p := range s.problems {
		errs = append(errs, p.err)
	}
	r.recordOutcome(ctx, s, errors.Join(errs...))
	r.tell(s)
}

// recordOutcome calls what the adapter has for it.
func (r *Reconciler) recordOutcome(ctx context.Context, s *session, err error) {
	employer := copyOf(s.employer)
	switch {
	case err != nil && r.binding.recordErrors != nil:
		_, failed := call(ctx, r.provider, s.key, "RecordErrorConditions", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.binding.recordErrors(ctx, employer, err)
		})
		s.fail(EventRecordErrorsFailed, failed)
	case err == nil && r.binding.recordStatuses != nil:
		_, failed := call(ctx, r.provider, s.key, "RecordStatuses", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.binding.recordStatuses(ctx, employer, s.employerResults, s.employeeResults)
		})
		s.fail(EventRecordStatusesFailed, failed)
	}
}

// failures are the items that failed, this time or before, sorted by name.
func (s *session) failures() []EmployeeError {
	all := slices.Clone(s.unplanned)
	for _, a := range s.memory.sorted() {
		f := s.memory.failures[a]
		reason := EventSyncEmployeesFailed
		if strings.HasSuffix(a.verb, "Employer") {
			reason = EventSyncEmployerFailed
		}
		all = append(all, EmployeeError{Name: cmp.Or(f.name, a.id), Times: f.times, Err: f.err, reason: reason})
	}
	slices.SortStableFunc(all, func(a, b EmployeeError) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
