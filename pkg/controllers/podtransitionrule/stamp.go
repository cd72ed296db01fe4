package podtransitionrule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// write sends changes of pods, and reports whether one of the pods had moved on. A pod
// whose last write has not been seen yet is left for the next round.
func (r *Reconciler) write(ctx context.Context, changes []podChange) (conflict bool, err error) {
	errs := make([]error, len(changes))
	var group errgroup.Group
	group.SetLimit(r.writesAtOnce)
	for i, one := range changes {
		if !r.pods.Seen(one.pod) {
			one.ended(false)
			continue
		}
		group.Go(func() error {
			errs[i] = r.pods.Write(ctx, one.pod, one.change)
			one.ended(errs[i] == nil)
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	for i, writeErr := range errs {
		switch {
		case writeErr == nil, apierrors.IsNotFound(writeErr):
		case apierrors.IsConflict(writeErr):
			conflict = true
		default:
			err = errors.Join(err, fmt.Errorf("stamping pod %s: %w", changes[i].pod.Name, writeErr))
		}
	}
	return conflict, err
}

// podChange is what to write to a pod.
type podChange struct {
	pod    *corev1.Pod
	change lifecycle.Change

	// done is called with whether it was written, unless it is nil.
	done func(written bool)
}

func (c podChange) ended(written bool) {
	if c.done != nil {
		c.done(written)
	}
}

// stamps are the changes that a plan makes, with what is recorded of them: the rules that a
// request passed, and those that would have held it back if they were enforced.
func (r *Reconciler) stamps(view podindex.Snapshot, d *decision, plan permit.Plan, recordedIn map[string]bool) []podChange {
	changes := changesOf(view, plan, recordedIn, r.options, r.clock.Now())
	granted := map[types.UID][]rule.Request{}
	for _, request := range plan.Grants {
		granted[request.Pod.UID] = append(granted[request.Pod.UID], request)
	}
	for i := range changes {
		pod, moves := changes[i].pod, changes[i].change.Transitions
		requests := granted[pod.UID]
		for at := range moves {
			for _, request := range requests {
				if request.ID == moves[at].ID && (moves[at].Step == lifecycle.StepPermit || moves[at].Step == lifecycle.StepPostPermit) {
					moves[at].Rules = d.passedBy(request)
				}
			}
		}
		changes[i].done = func(written bool) {
			for _, request := range requests {
				if written {
					r.recordWarnings(pod, request, d.warned[request.Key()])
				}
			}
		}
	}
	return changes
}

// changesOf are the changes that a plan makes, in the order of UIDs, stamps first: the
// granted permits of pods whose records are written, and a new generation for pods that
// hold a reservation and are withheld, so that no late stamp can hit them and the slot
// is free again.
func changesOf(
	view podindex.Snapshot, plan permit.Plan, recordedIn map[string]bool, options lifecycle.Options, now time.Time,
) []podChange {
	permits := permitsOf(plan, recordedIn)
	var changes []podChange
	for _, uid := range slices.Sorted(maps.Keys(permits)) {
		if pod := view.Pod(uid); pod != nil {
			change := lifecycle.Advance(lifecycle.FactsOf(pod), permits[uid], options, now)
			if !change.IsEmpty() {
				change.Annotations = withoutDetails(pod.Annotations)
			}
			changes = append(changes, podChange{pod: pod, change: change})
		}
	}
	for _, uid := range plan.Invalidate {
		if pod := view.Pod(uid); pod != nil {
			changes = append(changes, podChange{pod: pod, change: lifecycle.Renew(lifecycle.FactsOf(pod), now)})
		}
	}
	return changes
}

// permitsOf are the grants by pod, of those that are recorded where they have to be.
func permitsOf(plan permit.Plan, recordedIn map[string]bool) map[types.UID]lifecycle.Permits {
	permits := map[types.UID]lifecycle.Permits{}
	for _, request := range plan.Grants {
		uid := request.Pod.UID
		if !recorded(plan, uid, recordedIn) {
			continue
		}
		if _, ok := permits[uid]; !ok {
			permits[uid] = lifecycle.Permits{PreCheck: map[string]string{}, PostCheck: map[string]string{}}
		}
		if request.Stage == appsv1alpha1.StagePostCheck {
			permits[uid].PostCheck[request.ID] = request.Generation
		} else {
			permits[uid].PreCheck[request.ID] = request.Generation
		}
	}
	return permits
}

// recorded: every record that has to hold the pod does.
func recorded(plan permit.Plan, uid types.UID, recordedIn map[string]bool) bool {
	return !slices.ContainsFunc(plan.NeedsRecords[uid], func(name string) bool {
		_, adds := plan.Reserve[name]
		return adds && !recordedIn[name]
	})
}
