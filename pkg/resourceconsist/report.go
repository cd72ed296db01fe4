package resourceconsist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// report reports failures in events, in metrics, in the status of a Service, and to the
// adapter.
func (r *Reconciler) report(ctx context.Context, s *session) {
	all := s.failures()
	s.history.shown = r.measures.show(s.key, s.history.shown, all)
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
	outcome := errors.Join(errs...)
	r.recordOutcome(ctx, s, outcome)
	if service, ok := s.employer.(*corev1.Service); ok && r.binding.recordStatuses == nil {
		s.fail(EventRecordStatusesFailed, r.showCondition(ctx, s, service, outcome))
	}
	r.recordEvents(s)
}

// ConditionConsistent is a condition of Services: True while the provider has the expected
// state, and False with the reason of an event when something failed; the message names the
// first employees that failed. Adapters with StatusRecordOptions record their own.
const ConditionConsistent = appsv1alpha1.ConditionConsistent

// ReasonConsistent is the reason of ConditionConsistent when it is True.
const ReasonConsistent = "Consistent"

// showCondition writes the condition if it differs.
func (r *Reconciler) showCondition(ctx context.Context, s *session, service *corev1.Service, outcome error) error {
	base, condition := service.DeepCopy(), metav1.Condition{
		Type: ConditionConsistent, Status: metav1.ConditionTrue, Reason: ReasonConsistent, ObservedGeneration: service.Generation,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}
	if outcome != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, s.problems[0].reason, text.Cut(outcome.Error(), maxNote)
	}
	var changed bool
	if s.done {
		changed = meta.RemoveStatusCondition(&service.Status.Conditions, ConditionConsistent)
	} else {
		changed = meta.SetStatusCondition(&service.Status.Conditions, condition)
	}
	if !changed {
		return nil
	}
	// A strategic merge patch merges conditions by type and leaves other conditions
	// unchanged.
	if err := r.client.Status().Patch(ctx, service, client.StrategicMergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing condition %s: %w", ConditionConsistent, err)
	}
	return nil
}

// recordOutcome calls the StatusRecordOptions of the adapter.
func (r *Reconciler) recordOutcome(ctx context.Context, s *session, err error) {
	employer := copyObject(s.employer)
	switch {
	case err != nil && r.binding.recordErrors != nil:
		_, failed := call(ctx, r.provider, s.target, "RecordErrorConditions", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.binding.recordErrors(ctx, employer, err)
		})
		s.fail(EventRecordErrorsFailed, failed)
	case err == nil && r.binding.recordStatuses != nil:
		_, failed := call(ctx, r.provider, s.target, "RecordStatuses", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.binding.recordStatuses(ctx, employer, s.employerResults, s.employeeResults)
		})
		s.fail(EventRecordStatusesFailed, failed)
	}
}

// failures returns the items that failed, in this reconcile or before, sorted by name.
func (s *session) failures() []EmployeeError {
	all := slices.Clone(s.unplanned)
	for _, a := range s.history.sorted() {
		f := s.history.failures[a]
		reason := EventSyncEmployeesFailed
		if strings.HasSuffix(a.verb, "Employer") {
			reason = EventSyncEmployerFailed
		}
		all = append(all, EmployeeError{Name: cmp.Or(f.name, a.id), Times: f.times, Err: f.err, reason: reason})
	}
	slices.SortStableFunc(all, func(a, b EmployeeError) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
