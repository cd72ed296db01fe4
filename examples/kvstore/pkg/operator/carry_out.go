package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// carryOut takes the steps of a decision in their order, up to the first that fails.
func (r *Reconciler) carryOut(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	for _, step := range []func(context.Context, *kvstorev1.KVStoreCluster, plan.Decision) error{
		r.addFinalizer, r.keepDependents, r.writeStatus, r.lifecycles, r.roles, r.changeStore, r.apply, r.replace, r.runJobs, r.remove, r.removeFinalizer,
	} {
		if err := step(ctx, cluster, d); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) addFinalizer(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if !d.AddFinalizer {
		return nil
	}
	return r.patchFinalizers(ctx, cluster, controllerutil.AddFinalizer, kvstorev1.Finalizer)
}

func (r *Reconciler) keepDependents(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if !d.KeepDependents {
		return nil
	}
	return r.patchFinalizers(ctx, cluster, controllerutil.RemoveFinalizer, metav1.FinalizerDeleteDependents)
}

func (r *Reconciler) removeFinalizer(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if !d.RemoveFinalizer {
		return nil
	}
	if err := r.release(ctx, cluster); err != nil {
		return err
	}
	return client.IgnoreNotFound(r.patchFinalizers(ctx, cluster, controllerutil.RemoveFinalizer, kvstorev1.Finalizer))
}

// patchFinalizers adds or removes a finalizer under the version that was read: a patch replaces the list.
func (r *Reconciler) patchFinalizers(
	ctx context.Context, cluster *kvstorev1.KVStoreCluster, change func(client.Object, string) bool, finalizer string,
) error {
	changed := cluster.DeepCopy()
	change(changed, finalizer)
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the finalizers: %w", err)
	}
	return nil
}

// writeStatus writes the status if it has changed, and reports the change.
func (r *Reconciler) writeStatus(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if equality.Semantic.DeepEqual(cluster.Status, d.Status) {
		return nil
	}
	changed := cluster.DeepCopy()
	changed.Status = d.Status
	if err := r.client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.record(cluster, &cluster.Status, &d.Status)
	return nil
}

func (r *Reconciler) lifecycles(ctx context.Context, _ *kvstorev1.KVStoreCluster, d plan.Decision) error {
	for _, undo := range d.Undo {
		var updates []podopslifecycle.UpdateFunc
		if undo.Operation == plan.ScaleIn {
			updates = append(updates, podopslifecycle.WithdrawDelete)
		}
		_, err := podopslifecycle.UndoContext(ctx, r.client, lifecycle{undo.Operation}, undo.Pod.DeepCopy(), updates...)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if d.Begin == nil {
		return nil
	}
	_, err := podopslifecycle.BeginContext(ctx, r.client, lifecycle{d.Begin.Operation}, d.Begin.Pod.DeepCopy())
	return client.IgnoreNotFound(err)
}

// roles moves the label of the leader: first away from other pods, so that two never have it.
func (r *Reconciler) roles(ctx context.Context, _ *kvstorev1.KVStoreCluster, d plan.Decision) error {
	for _, pod := range d.ClearRole {
		if err := r.setRole(ctx, pod, nil); err != nil {
			return err
		}
	}
	if d.SetRole == nil {
		return nil
	}
	role := kvstorev1.RoleLeader
	return r.setRole(ctx, d.SetRole, &role)
}

func (r *Reconciler) setRole(ctx context.Context, pod *corev1.Pod, role *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": map[string]*string{kvstorev1.RoleLabelKey: role},
	}})
	if err != nil {
		return fmt.Errorf("encoding the role of pod %s: %w", pod.Name, err)
	}
	if err := r.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling pod %s with its role: %w", pod.Name, err)
	}
	return nil
}

// changeStore requests calls of the store. They are made outside of this worker, and their effect is seen in a later observation.
func (r *Reconciler) changeStore(_ context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	key := client.ObjectKeyFromObject(cluster)
	switch {
	case d.MoveLeader != nil:
		r.store.MoveLeader(key, *d.MoveLeader)
	case d.RemoveMember != "":
		r.store.RemoveMember(key, d.RemoveMember)
	case d.Observe:
		r.store.Refresh(key)
	}
	return nil
}

// apply creates or updates the Service and the StatefulSet. An update is rejected if the object has
// changed since it was read.
func (r *Reconciler) apply(ctx context.Context, _ *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if d.Service != nil {
		if err := r.write(ctx, d.Service); err != nil {
			return err
		}
	}
	if d.StatefulSet != nil {
		return r.write(ctx, d.StatefulSet)
	}
	return nil
}

func (r *Reconciler) write(ctx context.Context, object client.Object) error {
	if object.GetResourceVersion() == "" {
		if err := r.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
		return nil
	}
	if err := r.client.Update(ctx, object); err != nil {
		return fmt.Errorf("updating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

func (r *Reconciler) replace(ctx context.Context, _ *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if d.DeletePod == nil {
		return nil
	}
	return r.delete(ctx, d.DeletePod)
}

func (r *Reconciler) runJobs(ctx context.Context, cluster *kvstorev1.KVStoreCluster, d plan.Decision) error {
	for _, job := range d.DeleteJobs {
		if err := r.delete(ctx, job); err != nil {
			return err
		}
	}
	if d.CreateJob == nil {
		return nil
	}
	err := r.client.Create(ctx, d.CreateJob)
	if apierrors.IsAlreadyExists(err) {
		return r.isOfRound(ctx, cluster, d.CreateJob)
	}
	if err != nil {
		return fmt.Errorf("creating Job %s: %w", d.CreateJob.Name, err)
	}
	return nil
}

// errNameTaken reports a Job that another owner has under the name.
var errNameTaken = errors.New("a Job of that name has another owner")

// isOfRound returns nil for a Job that an earlier round has created.
func (r *Reconciler) isOfRound(ctx context.Context, cluster *kvstorev1.KVStoreCluster, job *batchv1.Job) error {
	stored, err := get(ctx, r.client, client.ObjectKeyFromObject(job), &batchv1.Job{})
	if err != nil || stored == nil || metav1.IsControlledBy(stored, cluster) {
		return err
	}
	return fmt.Errorf("creating Job %s: %w", job.Name, errNameTaken)
}

func (r *Reconciler) remove(ctx context.Context, _ *kvstorev1.KVStoreCluster, d plan.Decision) error {
	if d.DeleteStatefulSet != nil {
		if err := r.delete(ctx, d.DeleteStatefulSet); err != nil {
			return err
		}
	}
	for _, claim := range d.DeleteClaims {
		if err := r.delete(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes an object, and never another of the same name.
func (r *Reconciler) delete(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
