package podoperation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/podoperation"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// carryOut writes the steps, and returns how soon to try a step again that the state of its pod has
// prevented.
func (r *Reconciler) carryOut(ctx context.Context, a adapter, steps []podoperation.Step) (again time.Duration, err error) {
	var errs []error
	failed := false
	for _, step := range steps {
		if failed && step.Kind == podoperation.Begin {
			continue // no further pod begins
		}
		if r.stale.Has(step.Pod, r.clock.Now()) {
			again = backoff.MinDelay(again, retryConflict)
			continue
		}
		a.record = step.Record
		err := r.write(ctx, a, step)
		if errors.Is(err, errBlocked) {
			again = backoff.MinDelay(again, podoperation.BlockedDelay)
			continue
		}
		if errors.Is(err, errImpossible) {
			failed, err = true, nil
		}
		// The cache has this version until the watch delivers the next.
		r.stale.Note(step.Pod, r.clock.Now())
		switch {
		case err == nil, apierrors.IsNotFound(err), errors.Is(err, podopslifecycle.ErrTerminating), errors.Is(err, podopslifecycle.ErrNotControlled):
		case apierrors.IsConflict(err), errors.Is(err, errOperated), errors.Is(err, podopslifecycle.ErrStale):
			again = backoff.MinDelay(again, retryConflict)
		case apierrors.IsTooManyRequests(err):
			ctrllog.FromContext(ctx).V(1).Info("Removal rejected for now", "pod", client.ObjectKeyFromObject(step.Pod), "cause", err.Error())
			again = backoff.MinDelay(again, retryEviction)
		default:
			errs = append(errs, fmt.Errorf("%s of pod %s: %w", step.Kind, client.ObjectKeyFromObject(step.Pod), err))
		}
	}
	return again, errors.Join(errs...)
}

// write writes one step to a copy of its pod, which is the pod of the cache.
func (r *Reconciler) write(ctx context.Context, a adapter, step podoperation.Step) error {
	pod := step.Pod.DeepCopy()
	var err error
	switch step.Kind {
	case podoperation.Begin:
		if err := r.check(ctx, a.operation, pod); err != nil {
			return err
		}
		_, err = podopslifecycle.BeginContext(ctx, r.client, a, pod)
	case podoperation.Finish:
		_, err = podopslifecycle.FinishContext(ctx, r.client, a, pod)
	case podoperation.Undo:
		_, err = podopslifecycle.UndoContext(ctx, r.client, a, pod, a.whenUndo)
	case podoperation.Operate:
		if _, allowed := podopslifecycle.AllowOps(a, 0, pod); allowed {
			err = r.operate(ctx, a.operation, pod)
		}
	}
	return err
}

var (
	// errBlocked means that the action cannot be carried out on a pod yet.
	errBlocked = errors.New("the action cannot be carried out yet")

	// errImpossible means that the action can never be carried out on a pod, which is recorded on it.
	errImpossible = errors.New("the action cannot be carried out")
)

// check checks the action on the stored pod before its lifecycle begins, so that the pod serves on where it cannot be carried out.
func (r *Reconciler) check(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) error {
	action := operation.Spec.Action
	if podoperation.Removes(action) {
		return nil
	}
	stored := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), stored); err != nil {
		return fmt.Errorf("reading the containers: %w", err)
	}
	if stored.UID != pod.UID {
		return errBlocked // the cache follows
	}
	waits, err := podoperation.Check(action, stored)
	switch {
	case err != nil:
		return cmp.Or(r.fail(ctx, operation, stored, err), errImpossible)
	case waits != "":
		r.blocked.note(client.ObjectKeyFromObject(operation), pod.UID, waits, r.clock.Now())
		return errBlocked
	default:
		return nil
	}
}

// operate carries out the action on a pod that may be operated on. A failure that no retry helps is
// recorded on the pod.
func (r *Reconciler) operate(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) error {
	var err error
	switch action := operation.Spec.Action; action.Type {
	case appsv1alpha1.ActionRestart, appsv1alpha1.ActionUpdateImages:
		err = r.replaceContainers(ctx, operation, pod)
	case appsv1alpha1.ActionResize:
		err = r.resize(ctx, action, pod)
	case appsv1alpha1.ActionDelete:
		err = r.client.Delete(ctx, pod, deleteOptions(action, pod))
	case appsv1alpha1.ActionEvict:
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: deleteOptions(action, pod).AsDeleteOptions(),
		}
		err = r.client.SubResource("eviction").Create(ctx, pod, eviction)
	}
	if isFinal(err) {
		return r.fail(ctx, operation, pod, err)
	}
	return err
}

// impossibleError is the failure of an action that the pod does not allow.
type impossibleError struct{ error }

// isFinal reports whether no retry helps.
func isFinal(err error) bool {
	impossible := impossibleError{}
	return errors.As(err, &impossible) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err)
}

// deleteOptions are for the very version of the pod that may be operated on.
func deleteOptions(action appsv1alpha1.PodOperationAction, pod *corev1.Pod) *client.DeleteOptions {
	return &client.DeleteOptions{
		GracePeriodSeconds: action.GracePeriodSeconds,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	}
}

// podPatch is a strategic merge patch of a pod under its resourceVersion.
type podPatch struct {
	Metadata patchedMetadata `json:"metadata"`
	Spec     *patchedSpec    `json:"spec,omitempty"`
}

type patchedMetadata struct {
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type patchedSpec struct {
	Containers []patchedContainer `json:"containers"`
}

type patchedContainer struct {
	Name      string                       `json:"name"`
	Image     string                       `json:"image,omitempty"`
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

func patchOf(pod *corev1.Pod) podPatch {
	return podPatch{Metadata: patchedMetadata{UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
}

// replaceContainers writes new images and the record in one request.
func (r *Reconciler) replaceContainers(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) error {
	images, record, err := podoperation.Images(operation.Spec.Action, pod)
	if err != nil {
		return impossibleError{err}
	}
	patch := patchOf(pod)
	patch.Metadata.Annotations = map[string]string{podoperation.RecordKey(operation.UID): record.String()}
	if len(images) > 0 {
		patch.Spec = &patchedSpec{}
		for i := range pod.Spec.Containers {
			if image, ok := images[pod.Spec.Containers[i].Name]; ok {
				patch.Spec.Containers = append(patch.Spec.Containers, patchedContainer{Name: pod.Spec.Containers[i].Name, Image: image})
			}
		}
	}
	return r.client.Patch(ctx, pod, patch.raw())
}

// resize writes new resources. The subresource changes no metadata, so there is no record: the
// resources are.
func (r *Reconciler) resize(ctx context.Context, action appsv1alpha1.PodOperationAction, pod *corev1.Pod) error {
	resources, err := podoperation.Resources(action, pod)
	if err != nil {
		return impossibleError{err}
	}
	patch := patchOf(pod)
	patch.Spec = &patchedSpec{}
	for i := range pod.Spec.Containers {
		if wanted, ok := resources[pod.Spec.Containers[i].Name]; ok {
			patch.Spec.Containers = append(patch.Spec.Containers, patchedContainer{Name: pod.Spec.Containers[i].Name, Resources: &wanted})
		}
	}
	return r.client.SubResource("resize").Patch(ctx, pod, patch.raw())
}

// fail records on a pod why the action failed. Its lifecycle is undone in the next round.
func (r *Reconciler) fail(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod, cause error) error {
	patch := patchOf(pod)
	patch.Metadata.Annotations = map[string]string{
		podoperation.RecordKey(operation.UID): podoperation.Record{Failed: cause.Error()}.String(),
	}
	return r.client.Patch(ctx, pod, patch.raw())
}

// raw returns the patch to send.
func (p podPatch) raw() client.Patch {
	content, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and quantities are always encoded
	}
	return client.RawPatch(types.StrategicMergePatchType, content)
}
