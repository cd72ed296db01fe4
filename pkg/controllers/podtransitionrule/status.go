package podtransitionrule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// writeRecords writes the records and statuses that pods or calls wait for, and returns the names of the budgets
// whose record is stored. Records with new reservations are written in the order of podindex.Snapshot.Records,
// and a failed write ends the batch: all managers write the records of a batch in one order. Statuses with
// calls follow, several at once, so that no PodTransitionRule waits for the calls of all others. A batch that
// follows the last one too soon is postponed, with all of its records. It returns how soon to write the
// postponed records; 0 if no record is postponed.
func (r *Reconciler) writeRecords(ctx context.Context, snapshot snapshot, o evaluation.Outcome) (stored map[string]bool, wait time.Duration, err error) {
	stored = map[string]bool{}
	var calls []*statusWrite
	plan := o.Allocation.Plan
	wait = r.batchDue(snapshot, o)
	stopped := wait > 0
	reserve := func(name string, offTraffic int, write func(reserved []appsv1alpha1.ReservedPod) writeResult) {
		reserved, reserves := plan.Reserve[name]
		if !reserves || stopped {
			return
		}
		one := write(reserved)
		if stored[name] = one.stored; one.stored {
			record := snapshot.state.record(name)
			record.batches = record.batches.take(r.clock.Now(), r.batchInterval, offTraffic == 0)
		}
		stopped = one.again > 0 || one.err != nil
		wait, err = backoff.MinDelay(wait, one.again), errors.Join(err, one.err)
	}
	for _, view := range snapshot.Rules {
		name := view.Object.Name
		if _, reserves := plan.Reserve[name]; !reserves && o.Rulesets[name].IsUrgent() {
			calls = append(calls, r.described(view, o))
		}
		reserve(name, view.OffTraffic, func(reserved []appsv1alpha1.ReservedPod) writeResult {
			one := r.described(view, o)
			r.writeStatus(ctx, snapshot, plan, one, reserved)
			if one.attempted {
				snapshot.state.ruleset(name).pace.shared(r.clock.Now())
			}
			return one.writeResult
		})
	}
	for _, view := range snapshot.Disruptions {
		reserve(view.ID().String(), view.OffTraffic, func(reserved []appsv1alpha1.ReservedPod) writeResult {
			return r.writeBudget(ctx, snapshot, view, reserved)
		})
	}
	again, callsErr := r.writeEach(ctx, snapshot, plan, calls)
	for _, one := range calls {
		stored[one.view.Object.Name] = one.stored
		if one.attempted {
			snapshot.state.ruleset(one.view.Object.Name).pace.shared(r.clock.Now())
		}
	}
	return stored, backoff.MinDelay(wait, again), errors.Join(err, callsErr)
}

// batchDue returns the time for which the records of a plan are postponed: pods that become available one
// by one then share a batch, of one write, where each would cost a write of its own. A status that calls
// wait for is not postponed, and nor is a batch to which more pods would belong if rounds had more time,
// or records more capacity: these pods follow in the next round, and the pods of the present round have
// had their turn. The permit of a pod that is alone is not postponed either: no other one would share its write.
func (r *Reconciler) batchDue(snapshot snapshot, o evaluation.Outcome) (wait time.Duration) {
	plan := o.Allocation.Plan
	isFull := func(denial permit.Denial) bool { return denial.Rule.Rule == "" }
	if len(plan.Missed) > 0 || slices.ContainsFunc(plan.Denied, isFull) {
		return 0
	}
	due := func(name string, waiting, offTraffic int) {
		if _, reserves := plan.Reserve[name]; reserves && (waiting > 1 || offTraffic > 0) {
			wait = max(wait, snapshot.state.record(name).batches.due(r.clock.Now(), r.batchInterval))
		}
	}
	for _, view := range snapshot.Rules {
		name := view.Object.Name
		if _, reserves := plan.Reserve[name]; reserves && o.Rulesets[name].IsUrgent() {
			return 0
		}
		due(name, view.WaitingPods, view.OffTraffic)
	}
	for _, view := range snapshot.Disruptions {
		due(view.ID().String(), len(view.Waiting), view.OffTraffic)
	}
	return wait
}

// writeBackground writes the human-readable statuses of a few PodTransitionRules that no pod waits for, if they have
// changed and their last writes are long enough ago. It takes the background slot, and the PodTransitionRules of
// a namespace take turns. It returns how soon to write the statuses of the others; 0 if no other status has
// changed. Void reservations are dropped by the next write, and do not cause a write.
func (r *Reconciler) writeBackground(ctx context.Context, turn *turn, snapshot snapshot, o evaluation.Outcome) (wait time.Duration, err error) {
	if !turn.slot.take() {
		return evaluation.RetryBackground, nil
	}
	defer turn.slot.release()
	var due []*statusWrite
	for _, view := range backgroundOrder(snapshot) {
		name := view.Object.Name
		if _, reserves := o.Allocation.Plan.Reserve[name]; reserves || o.Rulesets[name].IsUrgent() {
			continue
		}
		one := r.described(view, o)
		left := r.statusDue(snapshot, one, o.Rulesets[name].CallsChanged)
		if left == 0 && len(due) == maxBackgroundWrites {
			wait = backoff.MinDelay(wait, evaluation.RetryBackground)
			break
		}
		if left == 0 {
			due = append(due, one)
			snapshot.state.lastBackground = name
		}
		wait = backoff.MinDelay(wait, left)
	}
	again, err := r.writeEach(ctx, snapshot, o.Allocation.Plan, due)
	for _, one := range due {
		if one.attempted {
			snapshot.state.ruleset(one.view.Object.Name).pace.written(r.clock.Now())
		}
	}
	return backoff.MinDelay(wait, again), err
}

// backgroundOrder returns the PodTransitionRules of a namespace, beginning after the PodTransitionRule
// of the last background write.
func backgroundOrder(snapshot snapshot) []podindex.RuleView {
	next, found := slices.BinarySearchFunc(snapshot.Rules, snapshot.state.lastBackground, func(view podindex.RuleView, name string) int {
		return strings.Compare(view.Object.Name, name)
	})
	if found {
		next++
	}
	return slices.Concat(snapshot.Rules[next:], snapshot.Rules[:next])
}

// statusWrite is one write of a status.
type statusWrite struct {
	view podindex.RuleView
	next *appsv1alpha1.PodTransitionRule

	// attempted reports whether the API server has stored the status, or rejected it with an error
	// that a retry does not change.
	attempted bool

	writeResult
}

// writeResult is what writing one record resulted in.
type writeResult struct {
	// stored, or else how soon to try again, or the error; all are zero when the object
	// no longer exists.
	stored bool
	again  time.Duration
	err    error
}

// described returns the status that follows from an outcome. The record of permits is unchanged.
func (r *Reconciler) described(view podindex.RuleView, o evaluation.Outcome) *statusWrite {
	next := view.Object.DeepCopy()
	describe(&next.Status, view, o, r.index.Targets(ruleKey(view.Object)), evaluation.StatusTime(r.clock.Now()))
	return &statusWrite{view: view, next: next}
}

// writeEach writes statuses without new reservations, several at once. It returns the delay after
// which to retry failed writes.
func (r *Reconciler) writeEach(ctx context.Context, snapshot snapshot, plan permit.Plan, writes []*statusWrite) (wait time.Duration, err error) {
	var group errgroup.Group
	group.SetLimit(r.writesAtOnce)
	for _, one := range writes {
		group.Go(func() error {
			r.writeStatus(ctx, snapshot, plan, one, slices.SortedFunc(maps.Values(one.view.Live), permit.ByUID))
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	for _, one := range writes {
		wait, err = backoff.MinDelay(wait, one.again), errors.Join(err, one.err)
	}
	return wait, err
}

// writeStatus writes one status, with a record of these reservations.
func (r *Reconciler) writeStatus(
	ctx context.Context, snapshot snapshot, plan permit.Plan, one *statusWrite, reserved []appsv1alpha1.ReservedPod,
) {
	old := one.view.Object
	before := reachable(old.Status.Permits, snapshot.ResourceVersion)
	one.next.Status.Permits = permit.NextRecord(before, appsv1alpha1.PermitRecord{
		Reserved: reserved, Recent: plan.Recent[old.Name], Owners: plan.Owners[old.Name],
	}, snapshot.At, snapshot.ResourceVersion)
	stored, err := r.statuses.WriteStatus(ctx, one.next)
	switch {
	case apierrors.IsConflict(err):
		one.again = evaluation.RetryStale
	case apierrors.IsNotFound(err):
	case err != nil && objectbounds.TooLarge(old) != nil:
		// An object near the limit of etcd has no room for a condition. No round fails for it.
		ctrllog.FromContext(ctx).Error(err, "Writing the status of a PodTransitionRule that is not loaded", "podTransitionRule", klog.KObj(old))
		one.attempted = true
	case err != nil:
		one.err = fmt.Errorf("writing status of PodTransitionRule %s: %w", ruleKey(old), err)
	default:
		one.attempted, one.stored = true, true
		r.index.RuleWritten(stored)
	}
}

// reachable returns a record without the views that it requires if the present view does not reach them:
// such a round is made only because no view ever reaches them (viewTimeout).
func reachable(record *appsv1alpha1.PermitRecord, resourceVersion string) *appsv1alpha1.PermitRecord {
	if permit.Reaches(resourceVersion, record) {
		return record
	}
	return &appsv1alpha1.PermitRecord{Reserved: record.Reserved, Owners: record.Owners}
}

// statusDue returns how long a status without new reservations has to wait: 0 when it is due now, less than
// 0 when it has not changed. Calls that failed are retried once the status has them, so such a status waits
// for a short interval only.
func (r *Reconciler) statusDue(snapshot snapshot, one *statusWrite, calls bool) time.Duration {
	if apiequality.Semantic.DeepEqual(one.view.Object.Status, one.next.Status) {
		return -1
	}
	longest := longestStatusInterval
	if calls {
		longest = statusInterval
	}
	return snapshot.state.ruleset(one.view.Object.Name).pace.due(r.clock.Now(), longest)
}
