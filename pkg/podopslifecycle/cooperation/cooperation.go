package cooperation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/podopslifecycle/internal/podpatch"
)

// ErrStale is returned when the pod has changed so that its traffic should be switched the other way, or
// is another pod of the same name. Read the pod again.
var ErrStale = errors.New("the object is of another pod, or its traffic was requested the other way since")

// Client is the part of a client that this package uses. Every client.Client has it.
type Client interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Traffic switches the traffic of one pod. Both methods are safe to repeat: Sync calls one of them whenever
// it is called.
type Traffic interface {
	// TrafficOn returns nil once the pod gets requests. It returns an error while that is not
	// confirmed.
	TrafficOn(ctx context.Context, pod *corev1.Pod) error

	// TrafficOff returns nil once the pod gets no requests any more and no request is in progress. It
	// returns an error while that is not confirmed.
	TrafficOff(ctx context.Context, pod *corev1.Pod) error
}

// Finalizer returns the protection finalizer of a service controller. The id is a label name of at most 63
// characters that no other service controller of the cluster has.
func Finalizer(id string) (string, error) {
	finalizer := appsv1alpha1.ProtectionFinalizerPrefix + "/" + id
	if problems := validation.IsQualifiedName(finalizer); len(problems) > 0 {
		return "", fmt.Errorf("id %q of a finalizer: %s", id, strings.Join(problems, "; "))
	}
	return finalizer, nil
}

// Sync switches the traffic of the pod as the pod expects it, and then adds or removes the finalizer. The
// order protects the pod, so after an error of the traffic the finalizer is unchanged. A pod that is not
// under PodOps gets traffic while it is ready, and no finalizer. Call Sync from Reconcile for each event of
// the pod, and return its error.
func Sync(ctx context.Context, c Client, traffic Traffic, finalizer string, pod *corev1.Pod) error {
	if !ExpectsTraffic(pod) {
		if err := traffic.TrafficOff(ctx, pod); err != nil {
			return fmt.Errorf("switching off the traffic of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		_, err := RemoveFinalizer(ctx, c, pod, finalizer)
		return err
	}
	if err := traffic.TrafficOn(ctx, pod); err != nil {
		return fmt.Errorf("switching on the traffic of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if !appsv1alpha1.IsControlled(pod.Labels) {
		_, err := podpatch.Write(ctx, c, pod, removing(finalizer))
		return wrapped("removing", finalizer, pod, err)
	}
	_, err := AddFinalizer(ctx, c, pod, finalizer)
	return err
}

// ExpectsTraffic reports whether the traffic of the pod should be on:
//   - the pod is not being deleted, and
//   - it is Ready, or would be but for the readiness gate of PodOps, which is open, and
//   - no operation prepares or is allowed, and the user does not keep the pod offline.
//
// Ready alone is not enough: a pod without the readiness gate stays Ready while operations prepare.
func ExpectsTraffic(pod *corev1.Pod) bool { return lifecycle.NewPodFacts(pod).ExpectsTraffic() }

// IsPodReady reports whether the condition Ready of the pod is True, as in the developer's guide. New code
// decides by ExpectsTraffic.
func IsPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// AddFinalizer adds the finalizer after traffic has come on, and reports whether it wrote anything. It
// returns ErrStale if the stored pod no longer expects traffic. A pod that is being deleted accepts no
// finalizer and needs no finalizer: that is no error.
func AddFinalizer(ctx context.Context, c Client, pod *corev1.Pod, finalizer string) (updated bool, err error) {
	updated, err = podpatch.Write(ctx, c, pod, func(obj client.Object) (bool, error) {
		if stored, ok := obj.(*corev1.Pod); ok && !ExpectsTraffic(stored) {
			return false, ErrStale
		}
		return controllerutil.AddFinalizer(obj, finalizer), nil
	})
	return updated, wrapped("adding", finalizer, pod, err)
}

// RemoveFinalizer removes the finalizer after traffic has gone off, and reports whether it wrote anything. It
// returns ErrStale if the stored pod expects traffic again. A pod that no longer exists is no error.
func RemoveFinalizer(ctx context.Context, c Client, pod *corev1.Pod, finalizer string) (updated bool, err error) {
	updated, err = podpatch.Write(ctx, c, pod, func(obj client.Object) (bool, error) {
		if stored, ok := obj.(*corev1.Pod); ok && ExpectsTraffic(stored) {
			return false, ErrStale
		}
		return removing(finalizer)(obj)
	})
	return updated, wrapped("removing", finalizer, pod, err)
}

// Expect makes the pod wait for the finalizer before it is available, and reports whether it wrote
// anything. The employer is "<Kind>/<namespace>/<name>" of the object on behalf of which the controller
// switches traffic, such as a Service. Without it a pod may be available before its traffic is on.
func Expect(ctx context.Context, c Client, pod *corev1.Pod, employer, finalizer string) (updated bool, err error) {
	updated, err = podpatch.Write(ctx, c, pod, func(obj client.Object) (bool, error) {
		return expect(obj, employer, finalizer)
	})
	return updated, wrapped("expecting", finalizer, pod, err)
}

func expect(obj client.Object, employer, finalizer string) (bool, error) {
	annotations := obj.GetAnnotations()
	conditions, err := lifecycle.ParseAvailableConditions(annotations)
	if err != nil {
		return false, fmt.Errorf("reading annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
	}
	if conditions.ExpectedFinalizers[employer] == finalizer {
		return false, nil
	}
	conditions.ExpectedFinalizers[employer] = finalizer
	value, err := json.Marshal(conditions)
	if err != nil {
		return false, fmt.Errorf("encoding annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
	}
	if len(value) > appsv1alpha1.MaxAnnotationBytes {
		return false, fmt.Errorf("annotation %s: %d employers do not fit into %d bytes",
			appsv1alpha1.AvailableConditionsAnnotationKey, len(conditions.ExpectedFinalizers), appsv1alpha1.MaxAnnotationBytes)
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = string(value)
	obj.SetAnnotations(annotations)
	return true, nil
}

func removing(finalizer string) func(client.Object) (bool, error) {
	return func(obj client.Object) (bool, error) { return controllerutil.RemoveFinalizer(obj, finalizer), nil }
}

// wrapped wraps an error with the failed action. It returns nil for nil, and for an error that
// needs no retry.
func wrapped(doing, finalizer string, pod *corev1.Pod, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err), doing == "adding" && tooLate(err):
		return nil
	case errors.Is(err, podpatch.ErrReplaced):
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("%s finalizer %s on pod %s/%s: %w", doing, finalizer, pod.Namespace, pod.Name, err)
}

// tooLate reports whether the pod is being deleted and accepts no finalizer.
func tooLate(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.finalizers" {
			return true
		}
	}
	return false
}
