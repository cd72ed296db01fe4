package deferreddelete

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// MinLapse is the lower bound for how long a request that is not repeated is pending. kubectl drain
	// repeats an eviction every 5 seconds.
	MinLapse = 15 * time.Second

	// MaxLapse is the upper bound.
	MaxLapse = 2 * time.Minute

	// lapseIntervals is the number of intervals between two requests of a client after which it does
	// not repeat them any more.
	lapseIntervals = 3

	// UnwantedLapse is the time for which the owner must not have wanted the pod deleted
	// before the delete is cancelled. A rollout that pauses between two steps must not lose
	// its progress.
	UnwantedLapse = 10 * time.Second

	// OperateLapse is for how long a pod whose owner deletes it by itself may be operated on
	// without being deleted. Its controller sees the change of the pod at once.
	OperateLapse = time.Minute
)

// Want is whether the controller of a pod's owner wants the pod deleted.
type Want int

// The values of Want.
const (
	// WantUnknown means that the owner does not show it.
	WantUnknown Want = iota

	// Wanted means that the owner wants the pod deleted.
	Wanted

	// Unwanted means that the owner needs the pod, or does not exist any more.
	Unwanted
)

// Step is the next step of a pending delete.
type Step int

// The steps.
const (
	Wait   Step = iota // nothing yet
	Finish             // carry it out
	Cancel             // end the lifecycle, and put the pod back into service
)

// Lapse is why a pending delete is cancelled, in metrics. Lapses never change.
type Lapse string

// The lapses.
const (
	LapseUnwanted  Lapse = "Unwanted"
	LapseRepeated  Lapse = "NotRepeated"
	LapseWithdrawn Lapse = "Withdrawn"
	LapseForgone   Lapse = "Forgone"
	LapseKept      Lapse = "Kept"
	LapseExchanged Lapse = "Exchanged"
	LapseAbandoned Lapse = "Abandoned"
	LapseEnded     Lapse = "Ended"
)

// Lapses returns all lapses.
func Lapses() []Lapse {
	return []Lapse{LapseUnwanted, LapseRepeated, LapseWithdrawn, LapseForgone, LapseKept, LapseExchanged, LapseAbandoned, LapseEnded}
}

// Describe returns the lapse, human-readable, for events.
func (l Lapse) Describe() string {
	switch l {
	case LapseUnwanted:
		return "the owner does not want the pod deleted any more"
	case LapseRepeated:
		return "the request was not repeated"
	case LapseWithdrawn:
		return "the label " + appsv1alpha1.ToDeleteLabelKey + " was removed"
	case LapseForgone:
		return "the owner did not delete the pod"
	case LapseKept:
		return "its removal was admitted by PodOps and denied by another webhook, a policy or a PodDisruptionBudget"
	case LapseAbandoned:
		return "the client went away while its request waited"
	case LapseExchanged:
		return "another pod of its owner is to go instead: " +
			"it is in a worse condition, has a lower deletion cost, or may be permitted while a rule withholds this pod"
	case LapseEnded:
		return "the pod has ended, and may be deleted at any time"
	default:
		return string(l)
	}
}

// State is a pending delete and the facts that decide its next step.
type State struct {
	Pod    *corev1.Pod
	Record appsv1alpha1.PendingDelete

	// May is true if the pod may be operated on now. Wake is the delay after which it may be,
	// without another change; 0 if something else is missing.
	May  bool
	Wake time.Duration

	// Want is whether the owner wants the pod deleted, and UnwantedFor the time for which it has
	// not.
	Want        Want
	UnwantedFor time.Duration

	// Withheld is whether rules withhold the pod: its client was answered so.
	Withheld bool

	// Unobserved is the time between the last recorded request and the last one that this manager has heard of, or its first
	// look: a leader does not record each repetition.
	Unobserved time.Duration
}

// Next returns the next step of a pending delete, and how soon to call Next again; 0 when only a
// change of the pod or its owner matters. The Lapse is the reason of a Cancel.
func Next(s State, now time.Time) (Step, Lapse, time.Duration) {
	switch {
	case isFinished(s.Pod):
		return Cancel, LapseEnded, 0 // a Job keeps the pods that have succeeded
	case Actor(s.Record.Actor) == ActorOwner:
		return s.nextForOwner(now)
	case Actor(s.Record.Actor) != ActorLabel:
		return s.nextForClient(now)
	case !hasLabel(s.Pod, appsv1alpha1.ToDeleteLabelKey):
		return Cancel, LapseWithdrawn, 0
	case s.May:
		return Finish, "", 0
	default:
		return Wait, "", s.Wake
	}
}

// nextForClient returns the next step of a request that its client repeats.
func (s State) nextForClient(now time.Time) (Step, Lapse, time.Duration) {
	left := s.lapse() - now.Sub(LastSeen(s.Record)) + s.Unobserved
	if left <= 0 {
		return Cancel, LapseRepeated, 0
	}
	return Wait, "", left
}

// lapse returns for how long a request is pending that is not repeated: three of its intervals, after its wait. A client that
// was answered to repeat the request for a pod that is prepared may not do so, and the pod is off traffic meanwhile. Controllers repeat
// their requests ever less often.
func (s State) lapse() time.Duration {
	actor := Actor(s.Record.Actor)
	lapse := max(lapseIntervals*time.Duration(s.Record.Interval), MinLapse)
	switch {
	case actor == ActorOwner || actor == ActorController:
		return MaxLapse
	case !s.Withheld:
		lapse += MaxWait
	}
	return min(lapse, MaxLapse)
}

// nextForOwner returns the next step of a delete by the controller of the owner.
func (s State) nextForOwner(now time.Time) (Step, Lapse, time.Duration) {
	operable := s.operableFor(now)
	switch {
	case s.Want == Unwanted && s.UnwantedFor >= UnwantedLapse:
		return Cancel, LapseUnwanted, 0
	case s.Want == Unwanted:
		return Wait, "", UnwantedLapse - s.UnwantedFor
	case Finishes(s.Pod) && s.May && s.Want == Wanted:
		return Finish, "", 0
	case Finishes(s.Pod):
		return Wait, "", s.Wake
	case operable >= OperateLapse:
		return Cancel, LapseForgone, 0
	case operable > 0:
		return Wait, "", OperateLapse - operable
	case s.Want == WantUnknown:
		return s.nextForClient(now)
	default:
		return Wait, "", 0
	}
}

// operableFor returns for how long the pod may be operated on, at least 1 ns; 0 if it may not.
func (s State) operableFor(now time.Time) time.Duration {
	value, ok := s.Pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	if !ok {
		return 0
	}
	nanos, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return OperateLapse
	}
	return max(1, now.Sub(time.Unix(0, nanos)))
}

func hasLabel(pod *corev1.Pod, key string) bool {
	_, ok := pod.Labels[key]
	return ok
}
