package kubelet

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// client is the client of kwok. It keeps the addresses of pods for their lifetime, and
// closes two gaps between kwok v0.8.0 and a kubelet, both in kwok's pkg/kwok/controllers:
//
//   - pod_controller.go deletes by name alone, a kubelet by name and UID;
//   - utils.go, shouldRetry: kwok drops a pod whose write was rejected
//     (forbidden, internal error, time-out of the connection) until the pod
//     changes; a kubelet retries.
type client struct {
	kubernetes.Interface
	addresses *addresses
}

func (c client) CoreV1() corev1client.CoreV1Interface {
	return core{c.Interface.CoreV1(), c.addresses}
}

type core struct {
	corev1client.CoreV1Interface
	addresses *addresses
}

func (c core) Pods(namespace string) corev1client.PodInterface {
	return pods{c.CoreV1Interface.Pods(namespace), c.addresses}
}

type pods struct {
	corev1client.PodInterface
	addresses *addresses
}

// List calls the pod client's List; the addresses of listed pods are marked as used.
func (p pods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, options)
	if err == nil {
		p.addresses.learn(list.Items)
	}
	return list, err
}

// Watch calls the pod client's Watch; the addresses of deleted pods are released.
func (p pods) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := p.PodInterface.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted {
			p.addresses.release(pod.UID)
		}
		return event, true
	}), nil
}

// Delete is a kubelet's final delete: of a pod that is terminating and whose containers
// have stopped, by its UID, with any finalizers.
func (p pods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pod, err := p.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return retriable(fmt.Errorf("reading pod %s before its final delete: %w", name, err))
	}
	if pod.DeletionTimestamp == nil || !HasStopped(pod) {
		// Another pod has the name; its own events lead to its steps.
		return nil
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return retriable(p.PodInterface.Delete(ctx, name, options))
}

// Patch calls the pod client's Patch, and marks rejections as retriable.
func (p pods) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string,
) (*corev1.Pod, error) {
	pod, err := p.PodInterface.Patch(ctx, name, kind, data, options, subresources...)
	return pod, retriable(err)
}

// retriable turns err into an error that kwok retries, with exponential back-off. nil stays
// nil. Errors that mean that the pod was deleted or replaced, and the end of the process,
// are unchanged.
func retriable(err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewServiceUnavailable(err.Error())
}
