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

// client is what kwok reads and writes through. It keeps the addresses of pods
// for their lifetime, and closes two gaps between kwok v0.8.0 and a kubelet, both
// in kwok's pkg/kwok/controllers:
//
//   - pod_controller.go deletes by name alone, a kubelet by name and UID;
//   - utils.go, shouldRetry: kwok forgets a pod whose write was refused
//     (forbidden, internal error, time-out of the connection) until the pod
//     changes; a kubelet tries again.
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

// List is the pod client's; the addresses of pods that are there are taken.
func (p pods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, options)
	if err == nil {
		p.addresses.learn(list.Items)
	}
	return list, err
}

// Watch is the pod client's; the addresses of pods that go are given back.
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

// Delete is a kubelet's final delete: of a pod that is terminating and whose
// containers have stopped, by its UID, whatever finalizers it has.
func (p pods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pod, err := p.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return retriable(fmt.Errorf("reading pod %s before its final delete: %w", name, err))
	}
	if pod.DeletionTimestamp == nil || !HasStopped(pod) {
		// Another pod has taken the name; its own events will be acted on.
		return nil
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return retriable(p.PodInterface.Delete(ctx, name, options))
}

// Patch is the pod client's, with refusals marked as worth another try.
func (p pods) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string,
) (*corev1.Pod, error) {
	pod, err := p.PodInterface.Patch(ctx, name, kind, data, options, subresources...)
	return pod, retriable(err)
}

// retriable turns err into the kind of error that kwok tries again after, with
// exponential back-off. nil stays nil. Left as they are: errors that say that
// the pod is gone or another one, and the end of the process.
func retriable(err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewServiceUnavailable(err.Error())
}
