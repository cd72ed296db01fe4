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
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// podChange is the write to a pod.
type podChange struct {
	pod    *corev1.Pod
	change lifecycle.Change

	// written reports whether it was written.
	written bool
}

// writePods writes changes of pods, and reports whether one of the pods had another resourceVersion by then.
// A pod whose last write has not been seen yet is left for the next round.
func (r *Reconciler) writePods(ctx context.Context, changes []*podChange) (conflict bool, err error) {
	errs := make([]error, len(changes))
	var group errgroup.Group
	group.SetLimit(r.writesAtOnce)
	for i, one := range changes {
		if !r.pods.CaughtUp(one.pod) {
			continue
		}
		group.Go(func() error {
			errs[i] = r.pods.Write(ctx, one.pod, one.change)
			one.written = errs[i] == nil
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
			err = errors.Join(err, fmt.Errorf("writing pod %s: %w", changes[i].pod.Name, writeErr))
		}
	}
	return conflict, err
}

// writePermits writes the permits of pods whose records are stored, with the rules that each request passed,
// and records events about the rules that would have withheld it if they were enforced. It reports whether a
// pod had another resourceVersion by then.
func (r *Reconciler) writePermits(ctx context.Context, snapshot snapshot, o evaluation.Outcome, stored map[string]bool) (conflict bool, err error) {
	changes := buildChanges(snapshot.Snapshot.Snapshot, o.Allocation.Plan, stored, r.options, r.clock.Now())
	granted := map[types.UID][]rule.Request{}
	for _, request := range o.Allocation.Plan.Grants {
		granted[request.Pod.UID] = append(granted[request.Pod.UID], request)
	}
	for _, one := range changes {
		transitions := one.change.Transitions
		for at := range transitions {
			for _, request := range granted[one.pod.UID] {
				if request.ID == transitions[at].ID && (transitions[at].Step == lifecycle.StepPermit || transitions[at].Step == lifecycle.StepPostPermit) {
					transitions[at].Rules = o.PassedBy(request)
				}
			}
		}
	}
	conflict, err = r.writePods(ctx, changes)
	for _, one := range changes {
		if !one.written {
			continue
		}
		for _, request := range granted[one.pod.UID] {
			r.metrics.permitted(request.Stage)
			r.recordWarnings(one.pod, request, o.Warnings(request.Key()))
			r.recordApproval(snapshot, request, o.Approval(request.Pod))
			r.recordWaivers(one.pod, request, o.Waivers(request))
		}
	}
	return conflict, err
}

// buildChanges returns the changes of a plan, in the order of UIDs, permits first: the
// granted permits of pods whose records are stored, and a new generation for pods that
// hold a reservation and are withheld, so that no late permit can be written to them and the slot
// is free again.
func buildChanges(
	view podindex.Snapshot, plan permit.Plan, recordedIn map[string]bool, options lifecycle.Options, now time.Time,
) []*podChange {
	permits := permitsByPod(plan, recordedIn)
	var changes []*podChange
	for _, uid := range slices.Sorted(maps.Keys(permits)) {
		if pod := view.Pod(uid); pod != nil {
			facts := lifecycle.NewPodFacts(pod)
			facts.HasCreateRules = slices.ContainsFunc(view.Rules, func(r podindex.RuleView) bool { return podindex.ChecksCreation(r.Object, pod) })
			change := lifecycle.Advance(facts, permits[uid], options, now)
			if !change.IsEmpty() {
				change.Annotations = deferreddelete.Verdicts[*string](pod.Annotations)
			}
			changes = append(changes, &podChange{pod: pod, change: change})
		}
	}
	for _, uid := range plan.Invalidate {
		if pod := view.Pod(uid); pod != nil {
			changes = append(changes, &podChange{pod: pod, change: lifecycle.Renew(lifecycle.NewPodFacts(pod), now)})
		}
	}
	return changes
}

// permitsByPod returns the permits by pod, of the pods whose records are stored.
func permitsByPod(plan permit.Plan, recordedIn map[string]bool) map[types.UID]lifecycle.Permits {
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
			permits[uid].PostCheck[request.ID] = request.Attempt
		} else {
			permits[uid].PreCheck[request.ID] = request.Attempt
		}
	}
	return permits
}

// recorded reports whether every record that must contain the pod does.
func recorded(plan permit.Plan, uid types.UID, recordedIn map[string]bool) bool {
	return !slices.ContainsFunc(plan.NeedsRecords[uid], func(name string) bool {
		_, adds := plan.Reserve[name]
		return adds && !recordedIn[name]
	})
}
