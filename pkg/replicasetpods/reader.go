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

	"github.com/podops-dev/podops/pkg/replicasetscale"
)

// ControllerUIDField is the name of the cache index of pods by the UID of their controller.
const ControllerUIDField = "podops.controllerUID"

// IndexByController returns the UID of the controller of a pod, for the index ControllerUIDField.
func IndexByController(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
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

// Workload returns the Deployment that controls a ReplicaSet, if any.
func (r Reader) Workload(ctx context.Context, set *appsv1.ReplicaSet) (replicasetscale.Workload, error) {
	controller := metav1.GetControllerOf(set)
	if controller == nil || controller.Kind != "Deployment" {
		return replicasetscale.Workload{}, nil
	}
	deployment := &appsv1.Deployment{}
	err := r.Get(ctx, types.NamespacedName{Namespace: set.Namespace, Name: controller.Name}, deployment)
	if apierrors.IsNotFound(err) || err == nil && deployment.UID != controller.UID {
		return replicasetscale.Workload{}, nil
	}
	if err != nil {
		return replicasetscale.Workload{}, fmt.Errorf("reading Deployment %s: %w", controller.Name, err)
	}
	workload := replicasetscale.Workload{Deployment: deployment}
	if !deployment.Spec.Paused {
		return workload, nil
	}
	err = r.eachSet(ctx, set.Namespace, deployment.UID, func(sibling *appsv1.ReplicaSet) error {
		workload.Total += replicasetscale.ReplicasOf(sibling.Spec.Replicas)
		return nil
	})
	return workload, err
}

// eachSet visits the ReplicaSets of a controller. They are shared with the cache: visit must
// not change them.
func (r Reader) eachSet(ctx context.Context, namespace string, controller types.UID, visit func(*appsv1.ReplicaSet) error) error {
	sets := &appsv1.ReplicaSetList{}
	if err := r.List(ctx, sets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for i := range sets.Items {
		if owner := metav1.GetControllerOfNoCopy(&sets.Items[i]); owner == nil || owner.UID != controller {
			continue
		}
		if err := visit(&sets.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// Kept returns the ReplicaSets of a Deployment that have a kept request.
func (r Reader) Kept(ctx context.Context, deployment client.Object) (kept []types.NamespacedName, err error) {
	err = r.eachSet(ctx, deployment.GetNamespace(), deployment.GetUID(), func(set *appsv1.ReplicaSet) error {
		if replicasetscale.HasAnnotations(set) {
			kept = append(kept, client.ObjectKeyFromObject(set))
		}
		return nil
	})
	return kept, err
}

// Related returns the pods of all ReplicaSets of the workload of a ReplicaSet, itself included.
func (r Reader) Related(ctx context.Context, set *appsv1.ReplicaSet) (related []*corev1.Pod, err error) {
	controller := metav1.GetControllerOf(set)
	if controller == nil {
		return r.Pods(ctx, set.Namespace, set.UID)
	}
	err = r.eachSet(ctx, set.Namespace, controller.UID, func(sibling *appsv1.ReplicaSet) error {
		pods, err := r.Pods(ctx, set.Namespace, sibling.UID)
		related = append(related, pods...)
		return err
	})
	return related, err
}
