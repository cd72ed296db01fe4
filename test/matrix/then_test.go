package matrix_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/stage/stagetest"
)

// step is an operation that a workload of so many pods must complete once a row has ended.
type step func(ctx context.Context, c *cell, workload client.Object, pods int) error

// continues creates the workload again if it was deleted, then rolls it out and scales it, and checks that PodOps
// leaves nothing on its objects. It returns the steps as text.
func (c *cell) continues(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.rule.LabelCheck != nil {
		go c.approving(ctx)
	}
	if c.terminates(ctx) {
		return "-", nil
	}
	if c.workload == nil {
		return "-", c.awaitClean(ctx)
	}
	again, err := c.createAgain(ctx)
	if err != nil {
		return "", err
	}
	steps, text := stepsFor(c.workload)
	for i, next := range steps {
		if err := next(ctx, c, c.workload, c.desired); err != nil {
			return "", fmt.Errorf("step %d of %q: %w", i+1, text, err)
		}
	}
	if again {
		text = "created again, " + text
	}
	return text, c.awaitClean(ctx)
}

// createAgain creates the workload if it was deleted, and waits until its pods serve. Its controller adopts orphans.
func (c *cell) createAgain(ctx context.Context) (again bool, err error) {
	found := c.workload.DeepCopyObject().(client.Object)
	err = c.Get(ctx, client.ObjectKeyFromObject(c.workload), found)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.Create(ctx, c.workload.DeepCopyObject().(client.Object)); err != nil {
			return true, fmt.Errorf("creating the workload again: %w", err)
		}
	case err != nil:
		return false, err
	default:
		c.desired = desired(found, c.desired)
	}
	return err != nil, c.awaitAvailable(ctx, c.desired)
}

// desired returns the replicas of a workload, or a default for a kind without a number of them.
func desired(workload client.Object, otherwise int) int {
	replicas := (*int32)(nil)
	switch workload := workload.(type) {
	case *appsv1.Deployment:
		replicas = workload.Spec.Replicas
	case *appsv1.StatefulSet:
		replicas = workload.Spec.Replicas
	case *appsv1.ReplicaSet:
		replicas = workload.Spec.Replicas
	case *batchv1.Job:
		if workload.Spec.Suspend != nil && *workload.Spec.Suspend {
			return 0
		}
		return 1
	}
	if replicas == nil {
		return otherwise
	}
	return int(*replicas)
}

// terminates reports whether the namespace is being deleted.
func (c *cell) terminates(ctx context.Context) bool {
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, types.NamespacedName{Name: c.Namespace}, namespace)
	return err != nil || namespace.DeletionTimestamp != nil
}

// stepsFor returns what a workload must complete, and its text.
func stepsFor(workload client.Object) (steps []step, text string) {
	switch workload.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet:
		return []step{rollsOut, scalesOutAndIn}, "rolls out, scales"
	case *appsv1.DaemonSet:
		return []step{rollsOut}, "rolls out"
	case *appsv1.ReplicaSet:
		return []step{scalesOutAndIn}, "scales"
	case *batchv1.Job:
		return []step{resumes}, "is suspended, resumes"
	default:
		return nil, "-"
	}
}

// rollsOut changes the template, and waits until all pods are others and serve.
func rollsOut(ctx context.Context, c *cell, workload client.Object, pods int) error {
	before := c.uids()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"matrix.podops.dev/round":"%d"}}}}}`, time.Now().UnixNano())
	if err := c.patch(ctx, workload.DeepCopyObject().(client.Object), patch); err != nil {
		return err
	}
	return c.Await(ctx, "the rollout", func() bool {
		for uid := range before {
			if _, old := c.Pods[uid]; old {
				return false
			}
		}
		return c.serve(pods)
	})
}

// scalesOutAndIn scales out by one, and in again.
func scalesOutAndIn(ctx context.Context, c *cell, workload client.Object, pods int) error {
	for _, replicas := range []int{pods + 1, pods} {
		if err := c.patch(ctx, workload.DeepCopyObject().(client.Object), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
			return err
		}
		if err := c.awaitAvailable(ctx, replicas); err != nil {
			return fmt.Errorf("scaling to %d: %w", replicas, err)
		}
	}
	return nil
}

// resumes suspends a Job, and resumes it.
func resumes(ctx context.Context, c *cell, workload client.Object, _ int) error {
	for pods, suspend := range []bool{true, false} { // a Job of the matrix has one pod
		if err := c.patch(ctx, workload.DeepCopyObject().(client.Object), fmt.Sprintf(`{"spec":{"suspend":%t}}`, suspend)); err != nil {
			return err
		}
		if err := c.awaitAvailable(ctx, pods); err != nil {
			return fmt.Errorf("suspending (%t): %w", suspend, err)
		}
	}
	return nil
}

// approving approves each pod that is not approved until ctx ends.
func (c *cell) approving(ctx context.Context) {
	for ctx.Err() == nil {
		_ = approve(ctx, c) // a pod that is not approved is approved in the next turn
		select {
		case <-ctx.Done():
		case <-time.After(5 * stagetest.Polling):
		}
	}
}

// awaitClean waits until PodOps has left nothing on the objects of the cell.
func (c *cell) awaitClean(ctx context.Context) error {
	for {
		left, err := c.remains(ctx)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PodOps leaves %v: %w", left, ctx.Err())
		case <-time.After(stagetest.Polling):
		}
	}
}

// remains returns what PodOps has left on pods and their owners.
func (c *cell) remains(ctx context.Context) ([]string, error) {
	var left []string
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("PodList"), appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"),
		appsv1.SchemeGroupVersion.WithKind("DeploymentList"), appsv1.SchemeGroupVersion.WithKind("StatefulSetList"),
		appsv1.SchemeGroupVersion.WithKind("DaemonSetList"), batchv1.SchemeGroupVersion.WithKind("JobList"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			for _, key := range traces(&list.Items[i]) {
				left = append(left, list.Items[i].Name+" "+key)
			}
		}
	}
	return left, nil
}

// traces returns the labels, annotations and finalizers of PodOps on an object that no operation is pending on
// must not have, and the deletion cost, which only PodOps sets here.
func traces(object client.Object) []string {
	keys := slices.Concat(slices.Sorted(maps.Keys(object.GetLabels())), slices.Sorted(maps.Keys(object.GetAnnotations())), object.GetFinalizers())
	return slices.DeleteFunc(keys, func(key string) bool {
		domain, _, _ := strings.Cut(key, "/")
		switch key {
		case appsv1alpha1.ServiceAvailableLabelKey:
			return true
		case corev1.PodDeletionCost:
			return false
		default:
			return !strings.HasSuffix(domain, appsv1alpha1.LifecycleDomain) && domain != appsv1alpha1.DetailAnnotationPrefix &&
				domain != appsv1alpha1.PodOperationAnnotationPrefix && key != appsv1alpha1.ToDeleteLabelKey
		}
	})
}
