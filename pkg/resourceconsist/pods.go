package resourceconsist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// protect brings the finalizer and the annotation of every pod to where the plan wants
// them, with at most one write to each. An error of one pod stops no other.
func (r *Reconciler) protect(ctx context.Context, s *session, traffic plan.Traffic) error {
	s.pending, s.waiting = false, nil
	var failed []error
	var colliding []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[name]
		facts := s.factsOf(pod)
		change := plan.Protect(facts, traffic.Of(name))
		if change.Pending && !s.history.blames(name) {
			s.pending, s.waiting = true, append(s.waiting, name)
		}
		if change.Collides {
			colliding = append(colliding, name)
		}
		if change.IsEmpty() {
			continue
		}
		if err := r.write(ctx, s, pod, change); err != nil {
			failed = append(failed, err)
		}
	}
	if len(colliding) > 0 {
		s.fail(EventEnsureExpectedFailed, fmt.Errorf(
			"another employer puts the finalizer %s on pods %s: it is made from the name of an employer alone, "+
				"and until one of the two is renamed this one protects none of these pods",
			s.finalizer, strings.Join(first(colliding, maxNamed), ", ")))
	}
	return errors.Join(first(failed, maxNamed)...)
}

func first[T any](list []T, most int) []T { return list[:min(most, len(list))] }

// factsOf reads what the plan decides from. When it is not known whom the employer
// selects, that is whoever it selected last.
func (s *session) factsOf(pod *corev1.Pod) plan.Pod {
	facts := lifecycle.FactsOf(pod)
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	expects := conditions.ExpectedFinalizers[s.conditionKey] == s.finalizer
	return plan.Pod{
		Selected:     s.selected[pod.Name] || !s.selectedKnown && (expects || err != nil),
		Controlled:   facts.Controlled(),
		Terminating:  facts.Terminating,
		Preparing:    facts.Preparing(),
		WantsTraffic: facts.ExpectsTraffic(),
		Has:          slices.Contains(pod.Finalizers, s.finalizer),
		Expects:      expects,
		Unreadable:   err != nil,
		Taken:        taken(conditions.ExpectedFinalizers, s.conditionKey, s.finalizer),
	}
}

// taken: another employer has the finalizer. Who is in the annotation has it; of two, the
// first by name.
func taken(expected map[string]string, key, finalizer string) bool {
	_, recorded := expected[key]
	for other, theirs := range expected {
		if other != key && theirs == finalizer && (!recorded || other < key) {
			return true
		}
	}
	return false
}

// write changes one pod. A pod that has changed or gone since it was read is left for the
// event that says so, and a finalizer that a pod can no longer get is not needed any
// more.
func (r *Reconciler) write(ctx context.Context, s *session, pod *corev1.Pod, change plan.Protection) error {
	changed := pod.DeepCopy()
	if change.Add {
		controllerutil.AddFinalizer(changed, s.finalizer)
	}
	if change.Remove {
		controllerutil.RemoveFinalizer(changed, s.finalizer)
	}
	if change.Expect || change.Forget {
		if err := setExpected(changed, s.conditionKey, s.finalizer, change.Expect); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	err := r.patch(ctx, changed, pod)
	switch {
	case err == nil:
		s.pods[pod.Name] = changed
		return nil
	case apierrors.IsConflict(err):
		s.pending = true
		return nil
	case apierrors.IsNotFound(err), change.Add && isTooLate(err):
		return nil
	default:
		return fmt.Errorf("protecting pod %s: %w", pod.Name, err)
	}
}

// isTooLate: the pod has begun to terminate, and takes no new finalizer.
func isTooLate(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.finalizers" })
}

// setExpected adds an employer to the annotation, or takes it off.
func setExpected(pod *corev1.Pod, key, finalizer string, add bool) error {
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	if err != nil {
		return fmt.Errorf("reading annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
	}
	if add {
		conditions.ExpectedFinalizers[key] = finalizer
	} else {
		delete(conditions.ExpectedFinalizers, key)
	}
	if len(conditions.ExpectedFinalizers) == 0 {
		delete(pod.Annotations, appsv1alpha1.AvailableConditionsAnnotationKey)
		return nil
	}
	value, err := json.Marshal(conditions)
	if err != nil {
		return fmt.Errorf("encoding annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
	}
	if len(value) > appsv1alpha1.MaxAnnotationBytes {
		return fmt.Errorf("annotation %s: %d employers do not fit into %d bytes; let fewer of them select the pod",
			appsv1alpha1.AvailableConditionsAnnotationKey, len(conditions.ExpectedFinalizers), appsv1alpha1.MaxAnnotationBytes)
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = string(value)
	return nil
}

// marksOf are the employers and the protection finalizers that a pod names: what it is
// indexed by.
func marksOf(pod *corev1.Pod) []string {
	var marks []string
	if conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations); err == nil {
		marks = slices.Sorted(maps.Keys(conditions.ExpectedFinalizers))
	}
	for _, finalizer := range pod.Finalizers {
		if lifecycle.IsProtectionFinalizer(finalizer) {
			marks = append(marks, finalizer)
		}
	}
	return marks
}

// patch sends what changed from base, under the condition that nobody else has changed
// the object meanwhile: a list of finalizers is replaced as a whole.
func (r *Reconciler) patch(ctx context.Context, changed, base client.Object) error {
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching %s/%s: %w", base.GetNamespace(), base.GetName(), err)
	}
	return nil
}
