// Package replicasetpods reads the pods and the Deployment of a ReplicaSet from the cache.
package replicasetpods

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// ControllerUIDField names the index for pods and ReplicaSets, whose keys are controller UIDs.
const ControllerUIDField = "podops.controllerUID"

// IndexByController returns the UID of an object's controller, for the index ControllerUIDField.
func IndexByController(object client.Object) []string {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return nil
	}
	return []string{string(controller.UID)}
}

// Reader reads from a cache with the index ControllerUIDField.
type Reader struct {
	client.Reader
}

// Pods returns the controlled pods whose controller has the UID, in any order. They are shared with
// the cache and must not be changed.
func (r Reader) Pods(ctx context.Context, namespace string, controller types.UID) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{ControllerUIDField: string(controller)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of a controller: %w", err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// Workload returns the Deployment that controls a ReplicaSet, if any, with its ReplicaSets.
func (r Reader) Workload(ctx context.Context, set *appsv1.ReplicaSet) (replicasetscale.Workload, error) {
	deployment, err := r.Deployment(ctx, set)
	if err != nil || deployment == nil {
		return replicasetscale.Workload{}, err
	}
	sets, err := r.Sets(ctx, set.Namespace, deployment.UID)
	return replicasetscale.Workload{Deployment: deployment, Sets: sets}, err
}

// Deployment returns the Deployment that controls a ReplicaSet; nil if none does, or the cache does not have it.
func (r Reader) Deployment(ctx context.Context, set *appsv1.ReplicaSet) (*appsv1.Deployment, error) {
	controller := metav1.GetControllerOfNoCopy(set)
	if controller == nil || controller.Kind != "Deployment" {
		return nil, nil //nolint:nilnil // no Deployment is no error
	}
	deployment := &appsv1.Deployment{}
	err := r.Get(ctx, types.NamespacedName{Namespace: set.Namespace, Name: controller.Name}, deployment)
	if apierrors.IsNotFound(err) || err == nil && deployment.UID != controller.UID {
		return nil, nil //nolint:nilnil // no Deployment is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s: %w", controller.Name, err)
	}
	return deployment, nil
}

// Sets returns the ReplicaSets of a controller, in any order. They are shared with the cache and must not be
// changed.
func (r Reader) Sets(ctx context.Context, namespace string, controller types.UID) ([]*appsv1.ReplicaSet, error) {
	list := &appsv1.ReplicaSetList{}
	err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{ControllerUIDField: string(controller)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of a controller: %w", err)
	}
	sets := make([]*appsv1.ReplicaSet, len(list.Items))
	for i := range list.Items {
		sets[i] = &list.Items[i]
	}
	return sets, nil
}

// Related returns the pods of all ReplicaSets that a ReplicaSet's workload has, itself included.
func (r Reader) Related(ctx context.Context, set *appsv1.ReplicaSet) (related []*corev1.Pod, err error) {
	controller := metav1.GetControllerOfNoCopy(set)
	if controller == nil {
		return r.Pods(ctx, set.Namespace, set.UID)
	}
	sets, err := r.Sets(ctx, set.Namespace, controller.UID)
	if err != nil {
		return nil, err
	}
	for _, sibling := range sets {
		pods, err := r.Pods(ctx, set.Namespace, sibling.UID)
		if err != nil {
			return nil, err
		}
		related = append(related, pods...)
	}
	return related, nil
}
