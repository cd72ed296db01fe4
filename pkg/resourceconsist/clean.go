package resourceconsist

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ensureClean adds the clean finalizer to the employer before anything else is done for it,
// together with the name of this controller: two controllers of one employer would undo
// each other's work.
func (r *Reconciler) ensureClean(ctx context.Context, s *session) error {
	if s.deleting {
		return nil
	}
	base, name := copyObject(s.employer), CleanFinalizer(s.employer.GetName())
	switch owner := s.employer.GetAnnotations()[ControllerAnnotationKey]; {
	case owner == r.binding.name && controllerutil.ContainsFinalizer(s.employer, name):
		return nil
	case owner != "" && owner != r.binding.name:
		return reconcile.TerminalError(fmt.Errorf(
			"the employer belongs to controller %q according to annotation %s: the predicates of two controllers must be disjoint",
			owner, ControllerAnnotationKey))
	}
	controllerutil.AddFinalizer(s.employer, name)
	annotations := s.employer.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ControllerAnnotationKey] = r.binding.name
	s.employer.SetAnnotations(annotations)
	if err := r.patch(ctx, s.employer, base); err != nil {
		return fmt.Errorf("adding finalizer %s: %w", name, err)
	}
	r.recorder.Eventf(s.employer, nil, corev1.EventTypeNormal, EventEnsureCleanFinalizerSucceed, "Reconcile", "finalizer %s added", name)
	return nil
}

// clean removes the clean finalizer from an employer that is being deleted, once the
// provider confirms that it holds nothing for the employer and no pod carries a mark of it.
func (r *Reconciler) clean(ctx context.Context, s *session) error {
	if !s.deleting {
		return nil
	}
	left := r.left(ctx, s)
	if left != "" {
		s.pending = true
		return nil
	}
	base := copyObject(s.employer)
	Disown(s.employer)
	if err := r.patch(ctx, s.employer, base); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		s.fail(EventCleanFailed, err)
		return err
	}
	s.done = true
	r.recorder.Eventf(s.employer, nil, corev1.EventTypeNormal, EventCleanSucceed, "Reconcile", "nothing is left at the provider")
	return nil
}

// Disown removes the clean finalizer and the annotations of this package from an employer.
func Disown(employer client.Object) {
	controllerutil.RemoveFinalizer(employer, CleanFinalizer(employer.GetName()))
	annotations := employer.GetAnnotations()
	for _, key := range []string{ControllerAnnotationKey, EmployeesRecordedAnnotationKey, EmployeesExpectedAnnotationKey} {
		delete(annotations, key)
	}
	employer.SetAnnotations(annotations)
}

// left names the reason to keep the clean finalizer; empty if it can be removed.
func (r *Reconciler) left(ctx context.Context, s *session) string {
	s.currentEmployers = readItems(ctx, r, s, readingEmployers("GetCurrentEmployer", EventGetCurrentEmployerFailed, r.binding.adapter.GetCurrentEmployer))
	switch {
	case s.currentEmployees == nil || s.currentEmployers == nil:
		return "the provider does not answer"
	case len(*s.currentEmployees) > 0:
		return "employees"
	case len(*s.currentEmployers) > 0:
		return "items of the employer itself"
	}
	for _, pod := range s.pods {
		facts := s.planPod(pod)
		if !facts.Taken && (facts.Has || facts.Expects) {
			return "pods"
		}
	}
	return ""
}
