// Package imageupdater is an operation controller: it sets the image of a pod in place, when rules permit it
// and the traffic of the pod is off. docs/operation-controllers.md explains each step.
package imageupdater

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// ImageAnnotation on a pod has the image that its first container should have, as the kubelet reports it.
const ImageAnnotation = "imageupdater.example.com/image"

// adapter describes the controller to PodOps.
type adapter struct{}

func (adapter) GetID() string                          { return "imageupdater" }
func (adapter) GetType() podopslifecycle.OperationType { return podopslifecycle.OperationTypeUpdate }
func (adapter) AllowMultiType() bool                   { return false }
func (adapter) WhenBegin(client.Object) (bool, error)  { return false, nil }
func (adapter) WhenFinish(client.Object) (bool, error) { return false, nil }

// Reconciler sets the images of pods.
type Reconciler struct {
	client.Client
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("imageupdater").For(&corev1.Pod{}).Complete(r)
}

// Reconcile takes one pod as far as it goes. Each event of the pod calls it again.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Get(ctx, req.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	image, wanted := pod.Annotations[ImageAnnotation]
	switch {
	case !wanted, pod.Spec.Containers[0].Image == image && runs(pod, image):
		_, err := podopslifecycle.FinishContext(ctx, r, adapter{}, pod)
		return ctrl.Result{}, err
	case pod.Spec.Containers[0].Image == image:
		return ctrl.Result{}, nil // The kubelet starts the container.
	case !podopslifecycle.IsDuringOps(adapter{}, pod):
		return ctrl.Result{}, r.begin(ctx, pod)
	}
	if wait, allowed := podopslifecycle.AllowOps(adapter{}, 0, pod); !allowed {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, r.update(ctx, pod, image)
}

// begin requests the operation. An event follows when the pod accepts operations.
func (r *Reconciler) begin(ctx context.Context, pod *corev1.Pod) error {
	_, err := podopslifecycle.BeginContext(ctx, r, adapter{}, pod)
	var inUse *podopslifecycle.TypeInUseError
	if errors.As(err, &inUse) || errors.Is(err, podopslifecycle.ErrTerminating) || errors.Is(err, podopslifecycle.ErrNotControlled) {
		ctrl.LoggerFrom(ctx).Info("Not updating the pod now", "reason", err.Error())
		return nil
	}
	return err
}

// update is the operation.
func (r *Reconciler) update(ctx context.Context, pod *corev1.Pod, image string) error {
	patch := client.MergeFromWithOptions(pod.DeepCopy(), client.MergeFromWithOptimisticLock{})
	pod.Spec.Containers[0].Image = image
	if err := r.Patch(ctx, pod, patch); err != nil {
		return fmt.Errorf("setting the image of the pod: %w", err)
	}
	return nil
}

// runs reports whether the first container of the pod runs with the image.
func runs(pod *corev1.Pod, image string) bool {
	name := pod.Spec.Containers[0].Name
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status.Image == image && status.State.Running != nil
		}
	}
	return false
}
