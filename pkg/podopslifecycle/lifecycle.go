package podopslifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podopslifecycle/internal/podpatch"
)

// CallTimeout bounds the calls that take no context.
const CallTimeout = 30 * time.Second

// IsDuringOps reports whether the adapter's id requests an operation of the adapter's type on the pod:
// from Begin to Finish or Undo.
func IsDuringOps(adapter LifecycleAdapter, pod client.Object) bool {
	l := of(adapter)
	running, ok := l.running(pod)
	return ok && running == l.operationType
}

// Begin requests an operation on the pod, and reports whether it wrote anything. When the operation is
// requested already, it only applies WhenBegin and the updates. An id that has finished and is not yet
// complete begins a new lifecycle. Errors: ErrNotControlled, ErrTerminating, ErrStale, TypeInUseError,
// OtherTypeError, InvalidAdapterError, errors of the updates and the client.
func Begin(c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (updated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	return BeginContext(ctx, c, adapter, pod, updates...)
}

// BeginContext is Begin with a context.
func BeginContext(ctx context.Context, c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (bool, error) {
	return begin(ctx, c, of(adapter), pod, updates)
}

// BeginWithCleaningOld is Begin for a controller that uses its id for operations of several types: if the
// id requests an operation of another type, that operation ends and the new operation begins, in one
// request. Its rules are evaluated again. A pod that the old operation was allowed to change stays off
// traffic until its rules of PostCheck pass. OtherTypeError is never returned.
func BeginWithCleaningOld(c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (updated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	return BeginWithCleaningOldContext(ctx, c, adapter, pod, updates...)
}

// BeginWithCleaningOldContext is BeginWithCleaningOld with a context.
func BeginWithCleaningOldContext(
	ctx context.Context, c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc,
) (bool, error) {
	l := of(adapter)
	l.replaces = true
	return begin(ctx, c, l, pod, updates)
}

// AllowOps reports whether the operation may start: its rules have passed, the traffic of the pod is off,
// and that since operationDelaySeconds. requeueAfter is the rest of the delay; zero where the pod changes
// before the answer does.
func AllowOps(adapter LifecycleAdapter, operationDelaySeconds int32, pod client.Object) (requeueAfter time.Duration, allowed bool) {
	return allowOps(adapter, time.Duration(operationDelaySeconds)*time.Second, pod, time.Now())
}

// Finish ends the operation after AllowOps allowed it and it is done: PodOps evaluates the rules of
// PostCheck, then traffic comes back. It reports whether it wrote anything. Before AllowOps it cancels the
// operation, as Undo does. When no operation is requested, it only applies WhenFinish and the updates.
// Errors: ErrStale, OtherTypeError, errors of the updates and the client.
func Finish(c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (updated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	return FinishContext(ctx, c, adapter, pod, updates...)
}

// FinishContext is Finish with a context.
func FinishContext(ctx context.Context, c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (bool, error) {
	l := of(adapter)
	began := pod.GetLabels()[l.operating()]
	updated, err := podpatch.Write(ctx, c, pod, func(pod client.Object) (bool, error) {
		running, ok := l.running(pod)
		if ok && running != l.operationType {
			return false, &OtherTypeError{ID: l.id, Running: running, Wanted: l.operationType}
		}
		if at, ok := pod.GetLabels()[l.operating()]; ok && at != began {
			return false, ErrStale
		}
		removed := removeLabels(pod, l.operating(), l.typed())
		changed, err := apply(pod, slices.Concat(updates, []UpdateFunc{l.WhenFinish}))
		return removed || changed, err
	})
	return updated, named("finishing", l, pod, err)
}

// Undo cancels the operation, or ends the lifecycle of the id in any phase: afterwards the pod has no
// label of the id, and its traffic comes back unless another id keeps it off. It does not revert the
// changes of the operation. It reports whether it wrote anything: nothing on a pod without a label of the
// id and without a change by an update. Begin may follow on the same object. Errors: ErrStale, errors of
// the updates and of the client.
func Undo(c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (updated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	return UndoContext(ctx, c, adapter, pod, updates...)
}

// UndoContext is Undo with a context.
func UndoContext(ctx context.Context, c Client, adapter LifecycleAdapter, pod client.Object, updates ...UpdateFunc) (bool, error) {
	l := of(adapter)
	began := pod.GetLabels()[l.operating()]
	updated, err := podpatch.Write(ctx, c, pod, func(pod client.Object) (bool, error) {
		if at, ok := pod.GetLabels()[l.operating()]; ok && at != began {
			return false, ErrStale
		}
		known := l.known(pod)
		if known {
			operationType, ok := pod.GetLabels()[l.typed()]
			if !ok {
				operationType = string(l.operationType)
			}
			setLabel(pod, l.undo(), operationType)
		}
		changed, err := apply(pod, updates)
		return known || changed, err
	})
	return updated, named("undoing", l, pod, err)
}

func begin(ctx context.Context, c Client, l lifecycle, pod client.Object, updates []UpdateFunc) (bool, error) {
	if err := l.check(); err != nil {
		return false, err
	}
	updated, err := podpatch.Write(ctx, c, pod, func(pod client.Object) (bool, error) {
		requested, err := l.request(pod, time.Now())
		if err != nil {
			return false, err
		}
		changed, err := apply(pod, slices.Concat(updates, []UpdateFunc{l.WhenBegin}))
		return requested || changed, err
	})
	return updated, named("beginning", l, pod, err)
}

// request adds the labels of the request to the pod, unless they are there.
func (l lifecycle) request(pod client.Object, now time.Time) (bool, error) {
	switch running, ok := l.running(pod); {
	case !appsv1alpha1.IsControlled(pod.GetLabels()):
		return false, ErrNotControlled
	case pod.GetDeletionTimestamp() != nil:
		return false, ErrTerminating
	case ok && running == l.operationType:
		return false, nil
	case ok && !l.replaces:
		return false, &OtherTypeError{ID: l.id, Running: running, Wanted: l.operationType}
	}
	if ids := l.others(pod); len(ids) > 0 && !l.AllowMultiType() {
		return false, &TypeInUseError{Type: l.operationType, IDs: ids}
	}
	setLabel(pod, l.operating(), stamp(now))
	setLabel(pod, l.typed(), string(l.operationType))
	return true, nil
}

func allowOps(adapter LifecycleAdapter, delay time.Duration, pod client.Object, now time.Time) (time.Duration, bool) {
	granted, ok := pod.GetLabels()[of(adapter).operate()]
	if !ok || !IsDuringOps(adapter, pod) {
		return 0, false
	}
	if delay <= 0 {
		return 0, true
	}
	nanos, err := strconv.ParseInt(granted, 10, 64)
	if err != nil {
		return delay, false // PodOps repairs its labels; until then nothing is known.
	}
	if rest := delay - now.Sub(time.Unix(0, nanos)); rest > 0 {
		return min(rest, delay), false
	}
	return 0, true
}

func apply(pod client.Object, updates []UpdateFunc) (bool, error) {
	changed := false
	for _, update := range updates {
		needed, err := update(pod)
		if err != nil {
			return false, err
		}
		changed = changed || needed
	}
	return changed, nil
}

// named wraps an error with the operation and the pod; nil stays nil.
func named(doing string, l lifecycle, pod client.Object, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, podpatch.ErrReplaced) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("%s operation %q on pod %s/%s: %w", doing, l.id, pod.GetNamespace(), pod.GetName(), err)
}
