package deferreddelete

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

const (
	// cancelAfter is the time for which the owner must have needed a pod again that is out of service before its
	// delete is cancelled. A rollout that pauses between two steps must not lose its progress.
	cancelAfter = 10 * time.Second

	// cancelWaitingAfter is that time for a pod that waits for its rules. The status of a ReplicaSet is behind its pods for
	// a moment.
	cancelWaitingAfter = 2 * time.Second
)

// ReplicaSetDeletes cancels the deferred deletes of ReplicaSets that these do not need any more. The controller of the
// ReplicaSet carries out the others: the label operate wakes it.
type ReplicaSetDeletes struct {
	undoer

	clock    clock.PassiveClock
	observed *observation.Tracker
	stale    *podwriter.Versions // pods whose cancellation the cache may not show yet
}

// Aspects of a pod whose delete is deferred, for observation.Tracker. Its state is the begin of the
// lifecycle: another lifecycle begins all waits again.
const (
	aspectAllowed  = "allowed"  // the owner may delete the pod
	aspectNeeded   = "needed"   // the owner needs the pod again
	aspectUnwanted = "unwanted" // the owner does not want the pod deleted
	aspectSeen     = "seen"     // when its client last requested its removal
)

// NewReplicaSetDeletes returns a ReplicaSetDeletes. c writes to the API server.
func NewReplicaSetDeletes(c client.Client, recorder events.EventRecorder, metrics *Metrics, clk clock.PassiveClock) *ReplicaSetDeletes {
	return &ReplicaSetDeletes{
		undoer: undoer{client: c, recorder: recorder, metrics: metrics}, clock: clk,
		observed: observation.NewTracker(clk), stale: podwriter.NewVersions(podwriter.StaleFor),
	}
}

// Cancel cancels the deletes of pods that a ReplicaSet needs, and of pods that its controller has not deleted for a
// minute although it may. target is the number of pods that the ReplicaSet is to have, others the number of its pods
// without the control label; pods are those with it. Cancel reports whether it has cancelled a delete that the controller might have
// carried out, and returns how soon to call it again; 0 if only a change matters.
func (r *ReplicaSetDeletes) Cancel(ctx context.Context, target, others int, pods []*corev1.Pod) (forgone bool, wait time.Duration, err error) {
	plan := deferreddelete.PlanFor(target, others, pods)
	for _, pod := range plan.Keep {
		r.observed.Forget(pod.UID, aspectNeeded)
		if !replicasetscale.IsGranted(pod) {
			r.observed.Forget(pod.UID, aspectAllowed)
			continue
		}
		undone, left, err := r.cancelIn(ctx, pod, aspectAllowed, deferreddelete.OperateLapse, deferreddelete.LapseForgone)
		if err != nil {
			return forgone, 0, err
		}
		forgone, wait = forgone || undone, backoff.MinDelay(wait, left)
	}
	for _, pod := range plan.Cancel {
		after := cancelWaitingAfter
		if deferreddelete.IsPermitted(pod) {
			after = cancelAfter
		}
		_, left, err := r.cancelIn(ctx, pod, aspectNeeded, after, deferreddelete.LapseUnwanted)
		if err != nil {
			return forgone, 0, err
		}
		wait = backoff.MinDelay(wait, left)
	}
	return forgone, wait, nil
}

// cancelIn cancels a pod delete once an aspect of the pod has been observed for a time; otherwise it returns the time that is left.
func (r *ReplicaSetDeletes) cancelIn(
	ctx context.Context, pod *corev1.Pod, aspect string, after time.Duration, lapse deferreddelete.Lapse,
) (undone bool, left time.Duration, err error) {
	if left := after - r.observed.Observe(pod.UID, aspect, deferreddelete.Begun(pod)); left > 0 {
		return false, left, nil
	}
	undone, err = r.cancel(ctx, pod, lapse, podwriter.PatchMetadata)
	return undone, 0, err
}

// Exchange cancels the delete of a pod that waits, so that another pod of its ReplicaSet may go. It returns false, and
// cancels nothing, if the pod has changed: a rule may have permitted it meanwhile.
func (r *ReplicaSetDeletes) Exchange(ctx context.Context, pod *corev1.Pod) (bool, error) {
	return r.cancel(ctx, pod, deferreddelete.LapseExchanged, podwriter.PatchUnchanged)
}

func (r *ReplicaSetDeletes) cancel(ctx context.Context, pod *corev1.Pod, lapse deferreddelete.Lapse, write patch) (bool, error) {
	if r.stale.Has(pod, r.clock.Now()) {
		return false, nil
	}
	undone, err := r.undo(ctx, pod, lapse, write)
	if undone {
		r.stale.Note(pod, r.clock.Now())
		r.observed.Forget(pod.UID, aspectNeeded)
		r.observed.Forget(pod.UID, aspectAllowed)
	}
	return undone, err
}
