// Package podpatch writes an object with the optimistic lock and decides again after a conflict.
package podpatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrReplaced is returned after a conflict with an object of the same name and another UID.
var ErrReplaced = errors.New("another object has the name")

// Client is the part of a client that this package uses.
type Client interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// conflictBackoff returns the waits between attempts: five attempts within half a second. For a pod
// that is written more often, the retries of the controller's work queue are better.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 5}
}

// Write sends the change that decide makes to a copy of the pod, and reports whether decide made a
// change. After a conflict decide is called again with the stored pod. The pod is replaced by the stored
// pod, unless an error is returned.
func Write(ctx context.Context, c Client, pod client.Object, decide func(pod client.Object) (bool, error)) (bool, error) {
	current, err := clone(pod)
	if err != nil {
		return false, err
	}
	var conflict error
	updated := false
	err = wait.ExponentialBackoffWithContext(ctx, conflictBackoff(), func(ctx context.Context) (bool, error) {
		if conflict != nil {
			if err := refresh(ctx, c, current); err != nil {
				return false, fmt.Errorf("reading the pod after a conflict: %w", err)
			}
		}
		next, err := clone(current)
		if err != nil {
			return false, err
		}
		changed, err := decide(next)
		if err != nil {
			return false, err
		}
		if !changed {
			assign(pod, current)
			return true, nil
		}
		err = c.Patch(ctx, next, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			conflict = err
			return false, nil
		}
		if err != nil {
			return false, err
		}
		assign(pod, next)
		updated = true
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, conflict
	}
	return updated, err
}

// refresh replaces the object by the stored object. A merge patch without content changes nothing, and
// its answer comes from the API server even where the client reads from a cache.
func refresh(ctx context.Context, c Client, pod client.Object) error {
	uid := pod.GetUID()
	if err := c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
		return err
	}
	if pod.GetUID() != uid {
		return ErrReplaced
	}
	return nil
}

func clone(pod client.Object) (client.Object, error) {
	if pod == nil || reflect.ValueOf(pod).Kind() != reflect.Pointer {
		return nil, fmt.Errorf("the pod is a %T and not a pointer to an object", pod)
	}
	copied, ok := pod.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("the copy of %T is no client.Object", pod)
	}
	return copied, nil
}

// assign sets *to to *from. Both are of the same pointer type.
func assign(to, from client.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem())
}
