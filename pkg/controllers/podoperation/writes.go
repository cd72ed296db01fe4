package podoperation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/runtime/text"
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
			again = backoff.MinDelay(again, retryReport) // the next round reports what the pod waits for
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
		if begins, err := r.check(ctx, a.operation, pod); err != nil || !begins {
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

// policyPrefix begins the names of PodOps' admission policies.
const policyPrefix = "podops-"

// check checks the action on the stored pod before its lifecycle begins, so that the pod serves on where it cannot be carried out:
// the API server, its policies and its webhooks answer a dry run of the very patch. It returns false for a pod on which nothing is
// left to do, once that is recorded.
func (r *Reconciler) check(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) (begins bool, err error) {
	action := operation.Spec.Action
	if podoperation.Removes(action) {
		return true, nil
	}
	stored := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), stored); err != nil {
		return false, fmt.Errorf("reading the containers: %w", err)
	}
	if stored.UID != pod.UID {
		return false, errBlocked // the cache follows
	}
	waits, err := podoperation.Check(action, stored, r.clock.Now())
	switch {
	case err != nil:
		err = impossibleError{err}
	case waits != "":
	case podoperation.IsDone(action, stored):
		return false, r.record(ctx, operation, stored, podoperation.Record{Done: true})
	default:
		waits, err = dryRun(ctx, r.client, operation, stored)
	}
	if isFinal(err) {
		return false, cmp.Or(r.fail(ctx, operation, stored, err), errImpossible)
	}
	r.memory.noteBlocked(client.ObjectKeyFromObject(operation), pod.UID, waits, r.clock.Now())
	if waits != "" {
		return false, errBlocked
	}
	return err == nil, err
}

// dryRun returns what an action waits for, according to a dry run; empty if the API server would store it.
func dryRun(ctx context.Context, c client.Client, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) (waits string, err error) {
	err = change(ctx, client.NewDryRunClient(c), operation, pod.DeepCopy())
	switch {
	case err == nil, isUnchecked(err):
		return "", nil
	case isFinal(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return "", err
	default:
		return "waits until a dry run of the action succeeds: " + text.Line(err.Error(), appsv1alpha1.MaxPodMessageBytes), nil
	}
}

// isUnchecked reports whether a dry run was denied only because it is one: the operation of the pod has not begun, which policies of
// PodOps demand, or a webhook does not support dry runs.
func isUnchecked(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policyPrefix) ||
		apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// operate carries out the action on a pod that may be operated on. A failure that no retry helps is
// recorded on the pod.
func (r *Reconciler) operate(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) error {
	var err error
	switch action := operation.Spec.Action; action.Type {
	case appsv1alpha1.ActionRestart, appsv1alpha1.ActionUpdateImages, appsv1alpha1.ActionResize:
		err = change(ctx, r.client, operation, pod)
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

func newPodPatch(pod *corev1.Pod) podPatch {
	return podPatch{Metadata: patchedMetadata{UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
}

// change carries out an action that leaves the pod in place. Images are written with the record in one request. The subresource of a
// resize changes no metadata, so there is no record: the resources are.
func change(ctx context.Context, c client.Client, operation *appsv1alpha1.PodOperation, pod *corev1.Pod) error {
	patch := newPodPatch(pod)
	if action := operation.Spec.Action; action.Type == appsv1alpha1.ActionResize {
		resources, err := podoperation.Resources(action, pod)
		if err != nil {
			return impossibleError{err}
		}
		patch.setContainers(pod, func(name string) patchedContainer { return patchedContainer{Name: name, Resources: resources[name]} })
		return c.SubResource("resize").Patch(ctx, pod, patch.raw())
	}
	images, record, err := podoperation.Images(operation.Spec.Action, pod)
	if err != nil {
		return impossibleError{err}
	}
	patch.Metadata.Annotations = map[string]string{podoperation.RecordKey(operation.UID): record.String()}
	patch.setContainers(pod, func(name string) patchedContainer { return patchedContainer{Name: name, Image: images[name]} })
	return c.Patch(ctx, pod, patch.raw())
}

// setContainers adds what changes of each container.
func (p *podPatch) setContainers(pod *corev1.Pod, changed func(name string) patchedContainer) {
	spec := patchedSpec{}
	for i := range pod.Spec.Containers {
		if container := changed(pod.Spec.Containers[i].Name); container.Image != "" || container.Resources != nil {
			spec.Containers = append(spec.Containers, container)
		}
	}
	if len(spec.Containers) > 0 {
		p.Spec = &spec
	}
}

// fail records on a pod why the action failed. Its lifecycle is undone in the next round.
func (r *Reconciler) fail(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod, cause error) error {
	return r.record(ctx, operation, pod, podoperation.Record{Failed: cause.Error()})
}

func (r *Reconciler) record(ctx context.Context, operation *appsv1alpha1.PodOperation, pod *corev1.Pod, record podoperation.Record) error {
	patch := newPodPatch(pod)
	patch.Metadata.Annotations = map[string]string{podoperation.RecordKey(operation.UID): record.String()}
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
