package podtransitionrule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Undoer cancels an operation on a pod that is still at its resourceVersion.
type Undoer interface {
	// Undo returns a conflict if the pod has another resourceVersion by now.
	Undo(ctx context.Context, pod *corev1.Pod, id, operationType string) error
}

// APIUndoer cancels operations as their actors do: by a label.
type APIUndoer struct {
	Client client.Client
}

// Undo implements Undoer.
func (u APIUndoer) Undo(ctx context.Context, pod *corev1.Pod, id, operationType string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
		"labels": map[string]string{appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + id: operationType},
	}})
	if err != nil {
		return fmt.Errorf("encoding labels: %w", err)
	}
	stored := &corev1.Pod{}
	stored.Namespace, stored.Name = pod.Namespace, pod.Name
	return u.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
}

// undoExpired cancels the operations that were held for the maximum time. It returns the delay until the
// next hold ends; 0 for never.
func (r *Reconciler) undoExpired(ctx context.Context, snapshot snapshot, o evaluation.Outcome) (wait time.Duration, err error) {
	expired, wait := o.Expired(snapshot.Waiting)
	errs := make([]error, len(expired))
	var group errgroup.Group
	group.SetLimit(r.writesAtOnce)
	for i, one := range expired {
		pod := snapshot.Pod(one.Request.Pod.UID)
		if pod == nil || !r.pods.CaughtUp(pod) {
			continue
		}
		group.Go(func() error {
			errs[i] = r.undo.Undo(ctx, pod, one.Request.ID, one.Request.Type)
			if errs[i] == nil {
				r.recordUndone(pod, one)
			}
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	for i, undoErr := range errs {
		switch {
		case undoErr == nil:
			snapshot.state.evaluation.Undone(expired[i].Request)
		case apierrors.IsConflict(undoErr):
			wait = backoff.MinDelay(wait, retryConflict)
		case !apierrors.IsNotFound(undoErr):
			err = errors.Join(err, fmt.Errorf("cancelling operation %s of pod %s: %w", expired[i].Request.ID, expired[i].Request.Pod.Name, undoErr))
		}
	}
	return wait, err
}

// recordUndone records that an operation was cancelled because it was held for the maximum time.
func (r *Reconciler) recordUndone(pod *corev1.Pod, one evaluation.Expired) {
	r.metrics.holdExpired(appsv1alpha1.HoldUndo)
	r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, EventHoldExpired, "Undo",
		"operation %s of id %s is cancelled: rule %s held it for %s (maxHold)", one.Request.Type, one.Request.ID, one.Rule, one.Max)
}

// recordWaivers records that a request was granted although rules withhold it: the first of them, and how many
// more.
func (r *Reconciler) recordWaivers(pod *corev1.Pod, request rule.Request, waivers []rule.Waiver) {
	if len(waivers) == 0 {
		return
	}
	more := ""
	if len(waivers) > 1 {
		more = fmt.Sprintf(" and %d more rules", len(waivers)-1)
	}
	first, kind, reason, cause := waivers[0], corev1.EventTypeWarning, EventBreakGlass, "break-glass "
	switch first.Exception {
	case rule.ExceptionMaxHold:
		reason, cause = EventHoldExpired, "maxHold, "
		r.metrics.holdExpired(appsv1alpha1.HoldRelease)
	case rule.ExceptionRevision:
		kind, reason, cause = corev1.EventTypeNormal, EventExempt, "exemptRevisions, "
	case rule.ExceptionBreakGlass:
	}
	r.metrics.waived(pod.Namespace, first.Exception)
	r.recorder.Eventf(pod, nil, kind, reason, "Permit",
		"operation %s of id %s passes rule %s (%s)%s: %s%s", request.Type, request.ID, first.Rule, first.Code, more, cause, first.Reason)
}
