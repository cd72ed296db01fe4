package podoperation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// MaxSteps bounds the steps of one round, so that a large operation does not occupy a worker.
	MaxSteps = 64

	// removalDelay is the age of an operation at which the first pod is removed. Creation times
	// have seconds: a replacement that is created later is newer than the operation.
	removalDelay = time.Second

	// emptyDelay is the age of an operation at which an empty target is a mistake. Before, the
	// pods may not have been observed yet.
	emptyDelay = 3 * time.Second

	// QueueDelay is the delay after which an operation that waits for others tries again, if it has
	// missed their end.
	QueueDelay = 10 * time.Second

	// BlockedDelay is the delay after which the action is checked again on a pod where it cannot be carried out yet.
	BlockedDelay = 5 * time.Second
)

// StepKind is a kind of write to a pod.
type StepKind string

const (
	// Begin begins the lifecycle.
	Begin StepKind = "Begin"

	// Operate carries out the action.
	Operate StepKind = "Operate"

	// Finish finishes the lifecycle, and writes the record.
	Finish StepKind = "Finish"

	// Undo ends the lifecycle of a pod that was not operated on.
	Undo StepKind = "Undo"
)

// Step is one write to a pod.
type Step struct {
	Kind StepKind
	Pod  *corev1.Pod

	// Record is written by Finish.
	Record Record
}

// Snapshot is the input of a decision. Decide does not modify it.
type Snapshot struct {
	Operation *appsv1alpha1.PodOperation

	// Pods are the pods that the Selector of the operation includes, in any order.
	Pods []*corev1.Pod

	// Blocked are the pods on which the action could not be carried out when it was last checked.
	Blocked map[types.UID]Blocked

	// Invalid is the cause for which the operation has no Selector; empty if it has.
	Invalid string

	// Full is true while as many other operations of the namespace are in progress as may be.
	Full bool

	// Now is the present time.
	Now time.Time
}

// Blocked is why the action could not be carried out on a pod yet, and when that was checked.
type Blocked struct {
	Message string
	At      time.Time
}

// Decision lists the writes for an operation. The parts are written in the order of the fields.
type Decision struct {
	// Protect is true when the finalizer has to be added, since lifecycles are about to begin.
	Protect bool

	// Status is the status as observed.
	Status appsv1alpha1.PodOperationStatus

	// Steps are the writes to pods, at most MaxSteps of them.
	Steps []Step

	// More is true when more steps are due.
	More bool

	// Release is true when the finalizer has to be removed, since no lifecycle is left.
	Release bool

	// Delete is true when ttlSecondsAfterFinished have passed.
	Delete bool

	// Wake is the delay after which the decision changes without another change; 0 is never.
	Wake time.Duration
}

// Decide returns the writes for an operation. It depends on the pods, and on the times of the start
// and the end and on the total in the status.
func Decide(s Snapshot) Decision {
	d := Decision{Status: *s.Operation.Status.DeepCopy()}
	d.Status.ObservedGeneration = s.Operation.Generation
	r := round{Snapshot: s, id: ID(s.Operation.UID)}
	r.observe()
	if d.Status.CompletionTime != nil {
		r.clean(&d)
		return d
	}
	r.count(&d.Status)
	r.decideReason(&d)
	if d.Status.StartTime != nil {
		r.plan(&d)
	}
	d.Status.Pods = r.list()
	if r.isOver(d) {
		ended := metav1.NewTime(s.Now)
		d.Status.CompletionTime = &ended
		r.clean(&d)
	}
	d.Protect = len(d.Steps) > 0 && s.Operation.DeletionTimestamp == nil && !isProtected(s.Operation)
	describe(&d.Status, r.reason, s)
	return d
}

// round is one decision in the making.
type round struct {
	Snapshot
	id      string
	targets []target // in the order of the operation

	// reason is the reason of the condition Ready.
	reason string
}

// observe fills targets. A terminating pod is not a target unless the operation requested its
// removal.
func (r *round) observe() {
	for _, pod := range inOrder(r.Operation.Spec, r.Pods) {
		if pod.DeletionTimestamp == nil || Removes(r.Operation.Spec.Action) {
			t := observe(r.Operation, pod, r.Now)
			if blocked, found := r.Blocked[pod.UID]; found && t.state == appsv1alpha1.PodWaiting {
				t.blocked, t.message = r.Now.Sub(blocked.At) < BlockedDelay, blocked.Message
			}
			r.targets = append(r.targets, t)
		}
	}
}

// count fills the counts of the status. The total never shrinks: a target that does not exist any more
// counts as removed by the operation, or as gone. A name without a pod at the start is gone in any case.
func (r *round) count(status *appsv1alpha1.PodOperationStatus) {
	counts := map[appsv1alpha1.PodOperationState]int32{}
	for i := range r.targets {
		counts[r.targets[i].state]++
	}
	total := max(int32(len(r.targets)), int32(len(r.Operation.Spec.Target.Names)))
	if status.StartTime != nil {
		total = max(total, status.Total)
	}
	status.Total = total
	status.Waiting, status.Preparing = counts[appsv1alpha1.PodWaiting], counts[appsv1alpha1.PodPreparing]
	status.Operating, status.Completing = counts[appsv1alpha1.PodOperating], counts[appsv1alpha1.PodCompleting]
	status.Succeeded, status.Failed = counts[appsv1alpha1.PodSucceeded], counts[appsv1alpha1.PodFailed]
	missing := total - int32(len(r.targets))
	if status.StartTime == nil || !Removes(r.Operation.Spec.Action) {
		status.Gone = missing
		return
	}
	status.Gone = min(status.Gone, missing)
	status.Succeeded += missing - status.Gone
}

// decideReason starts the operation when that is due, and decides its reason.
func (r *round) decideReason(d *Decision) {
	spec, age := &r.Operation.Spec, r.Now.Sub(r.Operation.CreationTimestamp.Time)
	started := d.Status.StartTime != nil
	var deadline time.Duration
	if started && spec.DeadlineSeconds != nil {
		deadline = d.Status.StartTime.Add(time.Duration(*spec.DeadlineSeconds) * time.Second).Sub(r.Now)
	}
	switch {
	case spec.Cancel || r.Operation.DeletionTimestamp != nil:
		r.reason = appsv1alpha1.ReasonCancelled
	case r.Invalid != "":
		r.reason = appsv1alpha1.ReasonInvalidTarget
	case started && spec.DeadlineSeconds != nil && deadline <= 0:
		r.reason = appsv1alpha1.ReasonDeadlineExceeded
	case d.Status.Failed > 0:
		r.reason = appsv1alpha1.ReasonPodsFailed
	case spec.Suspend:
		r.reason, d.Wake = appsv1alpha1.ReasonSuspended, max(0, deadline)
	case r.Full && !started:
		r.reason, d.Wake = appsv1alpha1.ReasonQueued, QueueDelay
	default:
		r.reason, d.Wake = appsv1alpha1.ReasonInProgress, max(0, deadline)
		if !started {
			r.start(d, age)
		}
	}
}

// start starts the operation, unless that is too early.
func (r *round) start(d *Decision, age time.Duration) {
	switch {
	case len(r.targets) == 0 && age < emptyDelay:
		d.Wake = emptyDelay - age
	case len(r.targets) == 0:
		r.reason = appsv1alpha1.ReasonNoTargets
	case Removes(r.Operation.Spec.Action) && age < removalDelay:
		d.Wake = removalDelay - age
	default:
		started := metav1.NewTime(r.Now)
		d.Status.StartTime = &started
		if deadline := r.Operation.Spec.DeadlineSeconds; deadline != nil {
			d.Wake = time.Duration(*deadline) * time.Second
		}
	}
}

// isWithdrawn reports whether lifecycles of pods that were not operated on are undone.
func (r *round) isWithdrawn() bool {
	return slices.Contains([]string{
		appsv1alpha1.ReasonCancelled, appsv1alpha1.ReasonDeadlineExceeded, appsv1alpha1.ReasonPodsFailed, appsv1alpha1.ReasonInvalidTarget,
	}, r.reason)
}

// plan fills the steps: first the steps of pods that are off traffic, so that they return soon.
func (r *round) plan(d *Decision) {
	steps, room, blocked := map[StepKind][]Step{}, r.room(d.Status), false
	add := func(kind StepKind, t *target) {
		steps[kind] = append(steps[kind], Step{Kind: kind, Pod: t.pod, Record: t.record})
	}
	for i := range r.targets {
		t := &r.targets[i]
		d.Wake = backoff.MinDelay(d.Wake, t.wait)
		switch kind := r.nextStep(t); {
		case t.blocked && t.state == appsv1alpha1.PodWaiting:
			room-- // none of the last pods begins in its place
			blocked = true
		case kind == Begin && room > 0:
			room--
			add(Begin, t)
		case kind != "" && kind != Begin:
			add(kind, t)
		}
	}
	d.Steps = slices.Concat(steps[Finish], steps[Operate], steps[Undo], r.withdrawLast(-room), steps[Begin])
	if blocked {
		d.Wake = backoff.MinDelay(d.Wake, BlockedDelay) // no event of such a pod wakes the operation
	}
	if len(d.Steps) > MaxSteps {
		d.Steps, d.More = d.Steps[:MaxSteps], true
	}
	inOperation := d.Status.Preparing + d.Status.Operating + d.Status.Completing
	if r.reason == appsv1alpha1.ReasonInProgress && len(steps[Begin]) == 0 && d.Status.Waiting > 0 && inOperation == 0 && !blocked {
		r.reason = appsv1alpha1.ReasonPartitioned
	}
}

// withdrawLast undoes the lifecycles of the last pods that wait for rules: the partition was raised.
func (r *round) withdrawLast(count int32) (steps []Step) {
	for i := len(r.targets) - 1; i >= 0 && count > 0; i-- {
		if t := &r.targets[i]; t.checking && t.during && r.reason == appsv1alpha1.ReasonInProgress {
			count--
			steps = append(steps, Step{Kind: Undo, Pod: t.pod})
		}
	}
	return steps
}

// nextStep returns the next step of a pod; Begin only if there is room.
func (r *round) nextStep(t *target) StepKind {
	switch {
	case r.isUndone(t):
		return Undo
	case t.next != "":
		return t.next
	case t.during && t.written && !t.pending && r.finishesEarly():
		t.record = Record{Done: true}
		return Finish
	case t.state == appsv1alpha1.PodWaiting && !t.blocked && r.reason == appsv1alpha1.ReasonInProgress:
		return Begin
	default:
		return ""
	}
}

// isUndone reports whether the lifecycle of a pod that was not operated on ends.
func (r *round) isUndone(t *target) bool {
	ends := r.isWithdrawn() || t.checking && r.reason == appsv1alpha1.ReasonSuspended
	return ends && t.during && !t.written && t.pod.DeletionTimestamp == nil
}

// finishesEarly reports whether pods that were operated on finish without waiting for the result, once their kubelets have ended the
// containers that are replaced: PostCheck rules and readiness still decide when they serve.
func (r *round) finishesEarly() bool {
	return r.isWithdrawn() && r.reason != appsv1alpha1.ReasonPodsFailed
}

// room returns how many more pods may begin. Below 0, as many have begun too much.
func (r *round) room(status appsv1alpha1.PodOperationStatus) int32 {
	return status.Waiting - r.partition(status.Total)
}

// partition returns how many targets are left as they are.
func (r *round) partition(total int32) int32 {
	if r.Operation.Spec.Partition == nil {
		return 0
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(r.Operation.Spec.Partition, int(total), true)
	if err != nil {
		return total // the schema admits no such value
	}
	return min(total, max(0, int32(count)))
}

// isOver reports whether the operation has ended.
func (r *round) isOver(d Decision) bool {
	switch r.reason {
	case appsv1alpha1.ReasonNoTargets:
		return true
	case appsv1alpha1.ReasonInProgress:
		if d.Status.StartTime == nil || len(d.Steps) > 0 || d.Status.Waiting+d.Status.Preparing+d.Status.Operating+d.Status.Completing > 0 {
			return false
		}
		r.reason = appsv1alpha1.ReasonSucceeded
		return true
	case appsv1alpha1.ReasonPodsFailed:
		return !r.isAnyDuring() && d.Status.Completing == 0
	default:
		return r.isWithdrawn() && !r.isAnyDuring()
	}
}

// isAnyDuring reports whether a lifecycle of the operation is left on a pod that is not terminating.
func (r *round) isAnyDuring() bool {
	return slices.ContainsFunc(r.targets, func(t target) bool { return t.during && t.pod.DeletionTimestamp == nil })
}

// clean ends an operation that is over: it removes lifecycles that are left, then the finalizer, then
// the operation itself when its time has come.
func (r *round) clean(d *Decision) {
	d.Wake = 0
	pending := false
	for i := range r.targets {
		t := &r.targets[i]
		switch {
		case !t.during || t.pod.DeletionTimestamp != nil || len(d.Steps) == MaxSteps:
		case t.written && t.pending:
			pending, d.Wake = true, backoff.MinDelay(d.Wake, t.wait)
		case t.written:
			d.Steps = append(d.Steps, Step{Kind: Finish, Pod: t.pod, Record: Record{Done: true}})
		default:
			d.Steps = append(d.Steps, Step{Kind: Undo, Pod: t.pod})
		}
	}
	if len(d.Steps) > 0 || pending {
		return
	}
	d.Release = isProtected(r.Operation)
	if ttl := r.Operation.Spec.TTLSecondsAfterFinished; ttl != nil && r.Operation.DeletionTimestamp == nil {
		d.Wake = max(0, d.Status.CompletionTime.Add(time.Duration(*ttl)*time.Second).Sub(r.Now))
		d.Delete = d.Wake == 0
	}
}

func isProtected(operation *appsv1alpha1.PodOperation) bool {
	return slices.Contains(operation.Finalizers, appsv1alpha1.PodOperationFinalizer)
}
