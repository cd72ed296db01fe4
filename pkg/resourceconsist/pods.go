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
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// protect applies the plan to the finalizer and the annotation of every pod, with at most
// one write per pod. An error of one pod does not stop the others.
func (r *Reconciler) protect(ctx context.Context, s *session, traffic plan.Traffic) error {
	s.pending, s.waiting = false, nil
	var failed []error
	var colliding []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[name]
		facts := s.planPod(pod)
		change := plan.Protect(facts, traffic.Of(name))
		if change.Pending && !s.history.hasFailed(name) {
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
			"another employer puts the finalizer %s on pods %s: the finalizer depends on the name of an employer alone, "+
				"and until one of the two is renamed this employer does not protect these pods",
			s.finalizer, strings.Join(first(colliding, maxNamed), ", ")))
	}
	return errors.Join(first(failed, maxNamed)...)
}

func first[T any](list []T, most int) []T { return list[:min(most, len(list))] }

// planPod returns the inputs of the plan for a pod. While the employees are not known, the
// pods that expect the finalizer count as selected.
func (s *session) planPod(pod *corev1.Pod) plan.Pod {
	facts := lifecycle.NewPodFacts(pod)
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

// taken reports whether another employer has the finalizer. The employer in the annotation
// has it; of two, the first by name.
func taken(expected map[string]string, key, finalizer string) bool {
	_, recorded := expected[key]
	for other, theirs := range expected {
		if other != key && theirs == finalizer && (!recorded || other < key) {
			return true
		}
	}
	return false
}

// write changes one pod. It ignores a pod that has changed or was deleted since it was
// read, because an event follows, and a finalizer that the pod can no longer get, because
// it is no longer needed.
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

// isTooLate reports whether the pod is terminating and accepts no new finalizer.
func isTooLate(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.finalizers" })
}

// setExpected adds an employer to the annotation, or removes it.
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

// readMarks returns the marks of a pod by which it is indexed: the employers and the
// protection finalizers that it names.
func readMarks(pod *corev1.Pod) []string {
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

// patch sends the difference to base with a precondition on the resourceVersion: a list of
// finalizers is replaced as a whole.
func (r *Reconciler) patch(ctx context.Context, changed, base client.Object) error {
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching %s/%s: %w", base.GetNamespace(), base.GetName(), err)
	}
	return nil
}
