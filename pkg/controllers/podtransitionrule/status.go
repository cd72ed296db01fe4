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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// writeFirst writes the statuses that somebody waits for. Those with the reservations of a
// plan come in the order of the names of their objects, and after one that could not be
// written no further one does: the records of a batch are written in one order by everybody.
// Those with calls follow, several at once: no object is to wait for the calls of all
// others. A batch that comes too soon after the last one is put off, with all of its records.
// It returns how soon to come back for what was not written, and what was.
func (r *Reconciler) writeFirst(ctx context.Context, view podindex.Snapshot, d *decision, plan permit.Plan) (wait time.Duration, did written, err error) {
	did = written{reservations: map[string]bool{}, statuses: map[string]bool{}}
	var calls []*statusWrite
	wait = r.batchDue(view, d, plan)
	stopped := wait > 0
	for _, rule := range view.Rules { // sorted by name
		name := rule.Object.Name
		reserved, reserves := plan.Reserve[name]
		switch {
		case reserves && !stopped:
			one := r.described(rule, d)
			r.writeStatus(ctx, view, plan, one, reserved)
			did.reservations[name], did.statuses[name] = one.stored, one.stored
			r.batchWritten(one)
			stopped = one.again > 0 || one.err != nil
			wait, err = minDelay(wait, one.again), errors.Join(err, one.err)
		case !reserves && d.objects[name].isUrgent():
			calls = append(calls, r.described(rule, d))
		}
	}
	again, callsErr := r.writeEach(ctx, view, plan, calls)
	for _, one := range calls {
		did.statuses[one.rule.Object.Name] = one.stored
	}
	return minDelay(wait, again), did, errors.Join(err, callsErr)
}

// batchDue says how long the records of a plan have to wait: pods that come back one by one
// make one batch, of one write, where they would make a batch each. A status that calls wait
// for is not put off, and nor is a batch that more pods would be in if rounds had more time, or
// records more room: those come with the next round, and the pods of this one had their turn.
func (r *Reconciler) batchDue(view podindex.Snapshot, d *decision, plan permit.Plan) (wait time.Duration) {
	noRoom := func(lastDenial permit.Denial) bool { return lastDenial.Rule.Rule == "" }
	if len(plan.Missed) > 0 || slices.ContainsFunc(plan.Refused, noRoom) {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range view.Rules {
		if _, reserves := plan.Reserve[rule.Object.Name]; !reserves {
			continue
		}
		if d.objects[rule.Object.Name].isUrgent() {
			return 0
		}
		if last, ok := r.lastBatch[keyOf(rule.Object)]; ok {
			wait = max(wait, r.batchInterval-r.clock.Since(last))
		}
	}
	return wait
}

func (r *Reconciler) batchWritten(one *statusWrite) {
	if !one.stored {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastBatch[keyOf(one.rule.Object)] = r.clock.Now()
}

// writeBackground writes what people read of one of the other objects, when it has changed and its
// last write is long enough ago. No pod waits for that, so it comes last, and one at a time
// (Reconciler.rest); the objects take turns. It returns how soon to come back for what was
// put off. Reservations that are dead go with the next write, and cause none.
func (r *Reconciler) writeBackground(ctx context.Context, view podindex.Snapshot, d *decision, plan permit.Plan) (wait time.Duration, err error) {
	present := map[string]bool{}
	for _, rule := range view.Rules {
		present[rule.Object.Name] = true
	}
	defer r.forget(view.Namespace, present)
	if !r.background.TryAcquire(1) {
		return retryBackground, nil
	}
	defer r.background.Release(1)
	var first []*statusWrite
	for _, rule := range r.backgroundOrder(view) {
		name := rule.Object.Name
		if _, reserves := plan.Reserve[name]; reserves || d.objects[name].isUrgent() {
			continue
		}
		one := r.described(rule, d)
		left := r.statusDue(rule.Object, one.next)
		if left == 0 && len(first) > 0 {
			wait = minDelay(wait, retryBackground)
			break
		}
		if left == 0 {
			first = append(first, one)
			r.recordBackground(view.Namespace, name)
		}
		wait = minDelay(wait, left)
	}
	again, err := r.writeEach(ctx, view, plan, first)
	return minDelay(wait, again), err
}

// inTurn are the rules of a namespace, the one first that comes after the last whose status
// was written for people.
func (r *Reconciler) backgroundOrder(view podindex.Snapshot) []podindex.RuleView {
	r.mu.Lock()
	last := r.lastBackground[view.Namespace]
	r.mu.Unlock()
	next, found := slices.BinarySearchFunc(view.Rules, last, func(rule podindex.RuleView, name string) int {
		return strings.Compare(rule.Object.Name, name)
	})
	if found {
		next++
	}
	return slices.Concat(view.Rules[next:], view.Rules[:next])
}

func (r *Reconciler) recordBackground(namespace, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastBackground[namespace] = name
}

// statusWrite is a status on its way.
type statusWrite struct {
	rule podindex.RuleView
	next *appsv1alpha1.PodTransitionRule

	// stored, or else when to try again, or what went wrong; none of these when the object
	// is gone.
	stored bool
	again  time.Duration
	err    error
}

// described is the status that follows from a decision. The record of permits is the old one.
func (r *Reconciler) described(rule podindex.RuleView, d *decision) *statusWrite {
	next := rule.Object.DeepCopy()
	describe(&next.Status, rule, d, r.index.Targets(keyOf(rule.Object)), statusTime(r.clock.Now()))
	return &statusWrite{rule: rule, next: next}
}

// writeEach writes statuses without new reservations, several at once. It returns how soon
// to come back for what could not be written.
func (r *Reconciler) writeEach(ctx context.Context, view podindex.Snapshot, plan permit.Plan, writes []*statusWrite) (wait time.Duration, err error) {
	var group errgroup.Group
	group.SetLimit(r.writesAtOnce)
	for _, one := range writes {
		group.Go(func() error {
			r.writeStatus(ctx, view, plan, one, slices.SortedFunc(maps.Values(one.rule.Live), permit.ByUID))
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	for _, one := range writes {
		wait, err = minDelay(wait, one.again), errors.Join(err, one.err)
	}
	return wait, err
}

// writeStatus writes one status, with a record of these reservations.
func (r *Reconciler) writeStatus(ctx context.Context, view podindex.Snapshot, plan permit.Plan, one *statusWrite, reserved []appsv1alpha1.ReservedPod) {
	old := one.rule.Object
	before := trusted(old.Status.Permits, view)
	one.next.Status.Permits = permit.NextRecord(before, reserved, plan.Recent[old.Name], plan.Owners[old.Name], view.At, view.ResourceVersion)
	stored, err := r.statuses.WriteStatus(ctx, one.next)
	switch {
	case apierrors.IsConflict(err):
		one.again = retryStale
	case apierrors.IsNotFound(err):
	case err != nil && objectbounds.TooLarge(old) != nil:
		// An object near the limit of etcd has no room for a condition. No round fails for it.
		ctrllog.FromContext(ctx).Error(err, "Writing the status of a PodTransitionRule that is not loaded", "podTransitionRule", klog.KObj(old))
		r.statusWritten(old)
	case err != nil:
		one.err = fmt.Errorf("writing status of PodTransitionRule %s: %w", keyOf(old), err)
	default:
		one.stored = true
		r.index.RuleWritten(stored)
		r.statusWritten(old)
	}
}

// written says what became of the statuses of a round, by object.
type written struct {
	reservations map[string]bool
	statuses     map[string]bool
}

// trusted is a record, without its demands if the view does not meet them: a round is
// only made then because they never will be met.
func trusted(record *appsv1alpha1.PermitRecord, view podindex.Snapshot) *appsv1alpha1.PermitRecord {
	if permit.Reaches(view.ResourceVersion, record) {
		return record
	}
	return &appsv1alpha1.PermitRecord{Reserved: record.Reserved, Owners: record.Owners}
}

// statusDue says how long a status that carries no reservation has to wait: 0 when it
// is due now, less than 0 when it has not changed.
func (r *Reconciler) statusDue(old, next *appsv1alpha1.PodTransitionRule) time.Duration {
	if apiequality.Semantic.DeepEqual(old.Status, next.Status) {
		return -1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.lastStatus[keyOf(old)]
	if !ok {
		return 0
	}
	return max(0, statusInterval-r.clock.Since(last))
}

func (r *Reconciler) statusWritten(object *appsv1alpha1.PodTransitionRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastStatus[keyOf(object)] = r.clock.Now()
}

// forget drops what is remembered of objects that are gone.
func (r *Reconciler) forget(namespace string, present map[string]bool) {
	for _, gone := range r.programs.forget(namespace, present) {
		r.metrics.forget(gone)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := func(key types.NamespacedName) bool { return key.Namespace == namespace && !present[key.Name] }
	maps.DeleteFunc(r.lastStatus, func(key types.NamespacedName, _ time.Time) bool { return gone(key) })
	maps.DeleteFunc(r.lastBatch, func(key types.NamespacedName, _ time.Time) bool { return gone(key) })
	maps.DeleteFunc(r.missing, func(key types.NamespacedName, _ map[types.UID]missing) bool { return gone(key) })
	maps.DeleteFunc(r.pendingViews, func(key types.NamespacedName, _ pendingView) bool { return gone(key) })
	if len(present) == 0 {
		delete(r.lastBackground, namespace)
	}
}

// sooner is the shorter of two delays; one that is not above zero is none.
func minDelay(a, b time.Duration) time.Duration {
	switch {
	case b <= 0:
		return a
	case a <= 0:
		return b
	default:
		return min(a, b)
	}
}

// describe fills in what people read. It leaves the record of permits alone.
func describe(status *appsv1alpha1.PodTransitionRuleStatus, rule podindex.RuleView, d *decision, targets []string, now metav1.Time) {
	status.ObservedGeneration = rule.Object.Generation
	status.Selected = int32(rule.Counts.Selected)
	status.Desired = int32(rule.Counts.Desired)
	status.Available = int32(rule.Counts.Available)
	status.Waiting = int32(len(podsOf(rule.Waiting)))
	status.OffTraffic = int32(rule.OffTraffic)
	status.Targets = targets
	status.Blocked = blocked(rule, d)
	status.BlockedBy = blockedBy(rule.Object.Name, status.Blocked)
	status.Rules = ruleStatuses(d.objects[rule.Object.Name])
	status.RuleStates = d.objects[rule.Object.Name].ruleStates()
	for _, condition := range conditions(rule, d.objects[rule.Object.Name]) {
		condition.ObservedGeneration = rule.Object.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// blockedBy names the rule that the first of the pods waits for, and why.
func blockedBy(object string, pods []appsv1alpha1.BlockedPod) string {
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s)", strings.TrimPrefix(pods[0].Rule, object+"/"), pods[0].Reason)
}

func podsOf(requests []rule.Request) []string {
	var uids []string
	for _, request := range requests {
		uids = append(uids, string(request.Pod.UID))
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// blocked lists the first requests that a rule of this object withholds.
func blocked(rule podindex.RuleView, d *decision) []appsv1alpha1.BlockedPod {
	var list []appsv1alpha1.BlockedPod
	for _, request := range rule.Waiting {
		for _, reason := range d.withheld[request.Key()] {
			if reason.Rule.Object.Name != rule.Object.Name {
				continue
			}
			if len(list) == appsv1alpha1.MaxStatusBlocked {
				return list
			}
			list = append(list, blockedOf(request, reason))
			break
		}
	}
	return list
}

// conditions says whether the rules of an object work.
func conditions(rule podindex.RuleView, object *rulesetEvaluation) []metav1.Condition {
	ready := metav1.Condition{
		Type: appsv1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: appsv1alpha1.ReasonEvaluated, Message: "every rule is compiled and evaluated",
	}
	stalled := metav1.Condition{
		Type: appsv1alpha1.ConditionStalled, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonNotStalled, Message: "no rule needs an edit",
	}
	reconciling := metav1.Condition{
		Type: appsv1alpha1.ConditionReconciling, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonEvaluated, Message: "the newest generation has been evaluated",
	}
	switch {
	case object.compileErr != nil:
		reason, message := reasonFor(object.compileErr), bounded(object.compileErr.Error(), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, reason, message)
		set(&stalled, metav1.ConditionTrue, reason, message)
		reconciling.Reason = reason
	case len(object.quarantined()) > 0:
		message := bounded(fmt.Sprintf("rule %s: %s", strings.Join(object.quarantined(), ", "), tooExpensive), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, appsv1alpha1.ReasonPolicyTooExpensive, message)
		set(&stalled, metav1.ConditionTrue, appsv1alpha1.ReasonPolicyTooExpensive, message)
		reconciling.Reason = appsv1alpha1.ReasonPolicyTooExpensive
	case object.evaluateErr != nil:
		// It is asked again (retryFailed): no edit is needed.
		message := bounded(object.evaluateErr.Error(), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, appsv1alpha1.ReasonEvaluationFailed, message)
		set(&reconciling, metav1.ConditionTrue, appsv1alpha1.ReasonEvaluationFailed, "a rule is asked again until it answers")
	case len(object.neverPasses) > 0:
		set(&stalled, metav1.ConditionTrue, appsv1alpha1.ReasonNeverPasses, bounded(fmt.Sprintf(
			"rule %s leaves no room even with all of the %d pods available: no available pod will ever pass it",
			strings.Join(object.neverPasses, ", "), max(rule.Counts.Desired, rule.Counts.Selected)), maxConditionBytes))
	}
	return []metav1.Condition{ready, reconciling, stalled, selecting(rule.Counts.Selected)}
}

// selecting reports whether the rules of an object can hold anything: a selector with a typing
// error compiles like any other.
func selecting(pods int) metav1.Condition {
	if pods > 0 {
		return metav1.Condition{
			Type: appsv1alpha1.ConditionSelecting, Status: metav1.ConditionTrue,
			Reason: appsv1alpha1.ReasonPodsSelected, Message: "the selector matches pods",
		}
	}
	return metav1.Condition{
		Type: appsv1alpha1.ConditionSelecting, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonNoPodSelected, Message: fmt.Sprintf(
			"the selector matches no pod of the namespace that has the label %s: %s", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue),
	}
}

func set(condition *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
	condition.Status, condition.Reason, condition.Message = status, reason, message
}

// maxConditionBytes is what a condition message takes.
const maxConditionBytes = 1024

// bounded cuts a message between characters.
func bounded(message string, most int) string {
	return strings.ToValidUTF8(message[:min(len(message), most)], "")
}

// reasonFor a rule that cannot be asked.
func reasonFor(err error) string {
	switch codeOf(err) {
	case rule.CodePolicyNotFound:
		return appsv1alpha1.ReasonPolicyNotFound
	case rule.CodeInvalidParameters:
		return appsv1alpha1.ReasonInvalidParameters
	case rule.CodeTooLarge:
		return appsv1alpha1.ReasonTooLarge
	default:
		return appsv1alpha1.ReasonCompileFailed
	}
}
