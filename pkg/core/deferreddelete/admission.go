package deferreddelete

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// OwnerState is the state of a pod's controller.
type OwnerState int

// The states of an owner. The zero value defers deletes: an owner of unknown state counts as
// present.
const (
	// OwnerPresent means that the owner exists, is of a kind that PodOps does not read, or that
	// the pod has no owner.
	OwnerPresent OwnerState = iota

	// OwnerTerminating means that the owner is being deleted. Its controller deletes no more
	// pods; the garbage collector does.
	OwnerTerminating

	// OwnerGone means that no owner with the UID that the pod refers to exists.
	OwnerGone
)

// StateWhenRead returns the owner state of a pod from its controller, or from the error of reading it. An owner whose pods stay when it is
// deleted counts as present: its controller sent the delete before.
func StateWhenRead(pod *corev1.Pod, owner metav1.Object, err error) OwnerState {
	switch {
	case apierrors.IsNotFound(err) || err == nil && owner.GetUID() != metav1.GetControllerOfNoCopy(pod).UID:
		return OwnerGone
	case err != nil || owner.GetDeletionTimestamp() == nil || slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return OwnerPresent
	default:
		return OwnerTerminating
	}
}

// Outcome is the answer to a delete or an eviction.
type Outcome string

// The outcomes.
const (
	// Allow lets the request pass.
	Allow Outcome = "Allow"

	// Hold rejects the request with 429. It passes when it is repeated once the pod is prepared.
	Hold Outcome = "Hold"

	// Await delays the response until the pod is prepared, or its rules withhold it.
	Await Outcome = "Await"
)

// Reason is why a delete or an eviction passes or is held, in metrics and events. Reasons never
// change.
type Reason string

// The reasons for which a request passes without rules.
const (
	ReasonPodOps               Reason = "PodOps"               // PodOps carries out a pending delete
	ReasonNotControlled        Reason = "NotControlled"        // the pod is not under PodOps
	ReasonTerminating          Reason = "Terminating"          // the next delete is the kubelet's final delete
	ReasonFinished             Reason = "Finished"             // the pod has succeeded or failed: it serves no requests
	ReasonMirrorPod            Reason = "MirrorPod"            // only its kubelet can stop a static pod
	ReasonNamespaceTerminating Reason = "NamespaceTerminating" // the namespace controller waits for every pod
	ReasonOwnerDeleted         Reason = "OwnerDeleted"         // the garbage collector deletes the pods of a deleted owner
	ReasonOtherPod             Reason = "OtherPod"             // the UID of the request is not the pod's: the API server rejects it
	ReasonKubernetes           Reason = "Kubernetes"           // a kubelet, the namespace controller, a garbage collector
	ReasonTaintManager         Reason = "TaintManager"         // a NoExecute taint; the taint manager does not repeat a delete
	ReasonPodGC                Reason = "PodGC"                // the node of the pod is deleted or out of service
	ReasonPreemption           Reason = "Preemption"           // the scheduler needs the room for a pod of higher priority
	ReasonKubelet              Reason = "Kubelet"              // the kubelet ended the pod: its node has no resources left
	ReasonForced               Reason = "Forced"               // the request has a grace period of 0 seconds
	ReasonPermitted            Reason = "Permitted"            // the rules have passed and traffic is off
	ReasonTwoBudgets           Reason = "TwoBudgets"           // the API server rejects the eviction of a pod with two PodDisruptionBudgets
	ReasonUnanswered           Reason = "Unanswered"           // no manager answered the review
)

// The reasons for which a request is held.
const (
	ReasonOwner    Reason = "Owner"    // a delete by the controller of the owner
	ReasonEviction Reason = "Eviction" // an eviction
	ReasonRequest  Reason = "Request"  // a delete by any other client
	ReasonBusy     Reason = "Busy"     // too many requests wait
	ReasonFormer   Reason = "Former"   // a delete by a controller that does not own the pod any more
	ReasonAnother  Reason = "Another"  // a request of the user for another pod of the owner was held, and is not repeated yet
)

// Review is a delete or an eviction of a pod, with the facts that decide about it.
type Review struct {
	// Pod is the pod as it is stored, or as a cache has it.
	Pod *corev1.Pod

	Owner                OwnerState
	NamespaceTerminating bool

	Method Method
	Actor  Actor

	// Forgeable is true if any client may have sent the review. A request begins a lifecycle only
	// if the API server has sent it, apart from requests of ReplicaSet controllers, which
	// are compared with the surplus of the ReplicaSet.
	Forgeable bool

	// DryRun is true for a request that changes nothing: it gets the same answer, and leaves
	// no record.
	DryRun bool

	// Forced is true for a delete with a grace period of 0 seconds.
	Forced bool

	// UID is the precondition of the request; empty without a precondition.
	UID types.UID

	// Budgets is the number of PodDisruptionBudgets that select the pod.
	Budgets int

	// HoldPreemption is true where pods are held for the scheduler, too.
	HoldPreemption bool
}

// Decision is the answer to a Review.
type Decision struct {
	Outcome Outcome
	Reason  Reason

	// Record is true if the request begins a lifecycle, or joins the lifecycle in progress.
	Record bool

	// Actor is the class of the recorded request.
	Actor Actor
}

// Decide returns the answer to a delete or an eviction of a pod. It passes if the pod needs no
// protection or if nothing may delay the request, and if the pod may be operated on. A request of a
// controller is held, even if PodOps does not see why the owner wants the pod deleted: its
// controller may have seen a change that PodOps has not. A request of a client waits; a dry run, and
// a review that any client may have sent, do not. A controller that does not own the pod any more is
// rejected, and begins nothing.
func Decide(r Review) Decision {
	if reason, ok := r.passes(); ok {
		return Decision{Outcome: Allow, Reason: reason}
	}
	held := Decision{Outcome: Hold, Reason: ReasonRequest, Record: !r.DryRun, Actor: r.Actor}
	switch r.Actor {
	case ActorOwner, ActorController:
		held.Reason = ReasonOwner
	case ActorEvictor:
		held.Outcome, held.Reason = Await, ReasonEviction
	case ActorScheduler:
		// As an evictor, the scheduler tries again for as long as it needs the room.
		held.Reason, held.Actor = ReasonPreemption, ActorEvictor
	case ActorFormerOwner:
		held.Reason, held.Record = ReasonFormer, false
	default:
		held.Outcome = Await
	}
	if r.Forgeable && (r.Actor != ActorOwner || !OfReplicaSet(r.Pod)) {
		held.Record = false
	}
	if !held.Record {
		held.Outcome = Hold
	}
	return held
}

// passes reports whether a request passes, and why.
func (r Review) passes() (Reason, bool) {
	if r.Actor == ActorManager {
		return ReasonPodOps, true
	}
	if reason, ok := Exempt(r.Pod); ok {
		return reason, true
	}
	if reason, ok := Disruption(r.Pod); ok && reason != ReasonPreemption {
		return reason, true
	}
	switch {
	case r.NamespaceTerminating:
		return ReasonNamespaceTerminating, true
	case r.Owner != OwnerPresent:
		return ReasonOwnerDeleted, true
	case r.Actor == ActorSystem:
		return ReasonKubernetes, true
	case r.Actor == ActorFormerOwner:
		return r.excepted() // a permit is not for this request
	case Operable(r.Pod.Labels) || r.isOperator() && granted(r.Pod.Labels, isAny, appsv1alpha1.OperateLabelPrefix):
		return ReasonPermitted, true
	default:
		return r.excepted()
	}
}

// isOperator reports whether an operation of any type permits the request: the controller of a custom owner replaces
// pods in operations of its own types, and an operation controller has the controller of a StatefulSet replace them.
func (r Review) isOperator() bool {
	return r.Actor == ActorController || r.Actor == ActorOwner && OwnerKind(r.Pod) == kindStatefulSet
}

// excepted reports whether the request itself is of a kind that passes, and why.
func (r Review) excepted() (Reason, bool) {
	switch {
	case r.UID != "" && r.UID != r.Pod.UID:
		return ReasonOtherPod, true
	case r.Actor == ActorScheduler && !r.HoldPreemption:
		return ReasonPreemption, true
	case r.Forced && r.Method != MethodEviction:
		return ReasonForced, true
	case r.Method == MethodEviction && r.Budgets > 1:
		return ReasonTwoBudgets, true
	default:
		return "", false
	}
}

// Exempt reports whether a pod may be deleted at any time, and why:
//   - it is not under PodOps,
//   - it is terminating already: the next delete is the kubelet's final delete,
//   - it has finished: it serves no requests,
//   - it is a mirror pod.
func Exempt(pod *corev1.Pod) (Reason, bool) {
	switch {
	case !appsv1alpha1.IsControlled(pod.Labels):
		return ReasonNotControlled, true
	case pod.DeletionTimestamp != nil:
		return ReasonTerminating, true
	case isFinished(pod):
		return ReasonFinished, true
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return ReasonMirrorPod, true
	default:
		return "", false
	}
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// reasonDeletionByPodGC is the reason of the condition DisruptionTarget that pod GC writes.
const reasonDeletionByPodGC = "DeletionByPodGC"

// Disruption reports whether a component of Kubernetes is about to delete the pod, and why, from
// the condition DisruptionTarget, which it sets right before. The taint manager gives up after
// five attempts within 50 ms, so its delete must pass at once. The disruption controller resets
// the condition after two minutes when no delete follows.
func Disruption(pod *corev1.Pod) (Reason, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Reason {
		case "DeletionByTaintManager", "DeletionByDeviceTaintManager":
			return ReasonTaintManager, true
		case reasonDeletionByPodGC:
			return ReasonPodGC, true
		case corev1.PodReasonPreemptionByScheduler:
			return ReasonPreemption, true
		}
	}
	return "", false
}

// Operable reports whether an operation that removes the pod was granted operate: pod-delete, or an id of the
// type delete. The rules for other types do not permit the removal.
func Operable(labels map[string]string) bool {
	return granted(labels, isRemoval, appsv1alpha1.OperateLabelPrefix)
}

// granted reports whether an id of some type has a label with one of the prefixes.
func granted(labels map[string]string, isType func(id, operationType string) bool, prefixes ...string) bool {
	for key := range labels {
		prefix, id, _ := strings.Cut(key, "/")
		if slices.Contains(prefixes, prefix) && isType(id, labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+id]) {
			return true
		}
	}
	return false
}

func isAny(string, string) bool { return true }

func isRemoval(id, operationType string) bool {
	return id == appsv1alpha1.PodDeleteID || operationType == appsv1alpha1.DeleteOperationType
}

// IsDeferred reports whether a deferred delete of the pod is in progress.
func IsDeferred(labels map[string]string) bool {
	_, ok := labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return ok
}
