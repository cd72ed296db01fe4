// Package removal removes pods on behalf of a person: it requests the delete or the eviction of each pod with the
// rights of the user, repeats a request that was answered with 429, and withdraws the remaining requests when it ends early.
//
// Plan decides which request comes next. It is pure; Remover carries it out.
package removal

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of Plan requests.
const (
	// maxPods is the number of pods that are requested, or terminate, at a time. PodOps lets 120 requests of a
	// user wait.
	maxPods = 100

	// maxRequests is the number of requests at a time. A request waits in admission for 10 s, and a pod
	// that is prepared lapses after 2 minutes: 100 pods are repeated within 40 s.
	maxRequests = 30

	// spacing is the least time between two requests.
	spacing = 25 * time.Millisecond

	// interval is the time between the answer to a request and its repeat, unless the answer names a time. The
	// request for a pod that is withheld lapses after 15 s.
	interval = 4 * time.Second

	// minInterval and maxInterval bound the times that answers name.
	minInterval, maxInterval = time.Second, 30 * time.Second

	// lookInterval is the time between two looks at a pod that terminates.
	lookInterval = 2 * time.Second

	// maxErrors is after how many errors of the API server in a row a pod counts as rejected.
	maxErrors = 10
)

// Pod is a pod to remove.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// NewPod returns the Pod of an object.
func NewPod(pod *corev1.Pod) Pod { return Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID} }

// Phase is how far the removal of a pod is.
type Phase string

// The phases.
const (
	Queued      Phase = "queued"      // not requested yet
	Requested   Phase = "requested"   // the first request has no answer yet
	Held        Phase = "held"        // answered with 429, to be repeated
	Failing     Phase = "failing"     // the API server had an error; to be repeated
	Terminating Phase = "terminating" // admitted
	Gone        Phase = "gone"        // no pod with the UID exists
	Rejected    Phase = "rejected"    // never to be repeated
)

// Removal is the removal of one pod.
type Removal struct {
	Pod
	Phase Phase

	// Reason is why the pod is held, failing or rejected.
	Reason string

	// Sent is true once a request was sent, which may have left a record on the pod.
	Sent bool

	inFlight bool
	errors   int
	due      time.Time
}

// ended reports whether nothing more is sent for the pod.
func (r Removal) ended() bool { return r.Phase == Gone || r.Phase == Rejected }

// Verb is what to send for a pod.
type Verb int

// The verbs.
const (
	Request Verb = iota // its delete, or its eviction
	Look                // a read: it terminates
)

// Kind is the class of an answer.
type Kind int

// The kinds.
const (
	Admitted    Kind = iota // the pod terminates
	Present                 // the pod exists, and does not terminate
	Absent                  // no pod with the UID exists
	TooMany                 // 429
	Unavailable             // an error that may pass
	Refused                 // an error that stays
	Interrupted             // the request was ended by its client
)

// Answer is the answer to what was sent.
type Answer struct {
	Kind   Kind
	Reason string

	// After is the time after which to repeat the request; 0 if the answer does not name it.
	After time.Duration
}

// Plan is the removal of pods. It is not safe for concurrent use.
type Plan struct {
	Removals []Removal
	next     time.Time // no request is sent before
}

// NewPlan returns the removal of pods in this order: pods that are not ready come first, whose removal makes
// nothing unavailable; then by name, and the pods of a StatefulSet from its highest ordinal, as its controller goes.
func NewPlan(pods []*corev1.Pod) *Plan {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		byName := cmp.Compare(a.Name, b.Name)
		if set := metav1.GetControllerOfNoCopy(a); set != nil && set.Kind == "StatefulSet" {
			byName = cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), cmp.Compare(b.Name, a.Name))
		}
		return cmp.Or(cmp.Compare(readiness(a), readiness(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(ownerName(a), ownerName(b)), byName)
	})
	plan := &Plan{Removals: make([]Removal, len(sorted))}
	for i, pod := range sorted {
		plan.Removals[i] = Removal{Pod: NewPod(pod), Phase: Queued}
		if pod.DeletionTimestamp != nil {
			plan.Removals[i].Phase = Terminating
		}
	}
	return plan
}

func readiness(pod *corev1.Pod) int {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return 1
		}
	}
	return 0
}

func ownerName(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Kind + "/" + controller.Name
	}
	return ""
}

// Next returns what to send now, for the removal with an index; or else false, and how long to wait unless an
// answer comes first (0: for an answer only). What it returns counts as sent.
func (p *Plan) Next(now time.Time) (index int, verb Verb, ok bool, wait time.Duration) {
	first, due := p.first(now)
	if first < 0 {
		return 0, Request, false, 0
	}
	if at := later(due, p.next); now.Before(at) {
		return 0, Request, false, at.Sub(now)
	}
	p.next = now.Add(spacing)
	removal := &p.Removals[first]
	removal.inFlight = true
	if removal.Phase == Terminating {
		return first, Look, true, 0
	}
	removal.Sent = true
	if removal.Phase == Queued {
		removal.Phase = Requested
	}
	return first, Request, true, 0
}

// first returns the removal that is due first, and when; -1 while answers have to come first. Pods that are not
// requested yet come after the requests whose repeat is due.
func (p *Plan) first(now time.Time) (first int, due time.Time) {
	sent, open := 0, 0
	for _, removal := range p.Removals {
		if removal.inFlight {
			sent++
		}
		if removal.Phase != Queued && !removal.ended() {
			open++
		}
	}
	first = -1
	if sent >= maxRequests {
		return first, due
	}
	for i, removal := range p.Removals {
		if removal.ended() || removal.inFlight || removal.Phase == Queued && open >= maxPods {
			continue
		}
		at := removal.due
		if removal.Phase == Queued {
			at = now
		}
		if first < 0 || at.Before(due) {
			first, due = i, at
		}
	}
	return first, due
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Answer takes the answer to what was sent for the removal with an index.
func (p *Plan) Answer(index int, answer Answer, now time.Time) {
	removal := &p.Removals[index]
	removal.inFlight = false
	if answer.Kind == Interrupted {
		return
	}
	removal.Reason, removal.due = answer.Reason, now.Add(interval)
	if answer.Kind != Unavailable {
		removal.errors = 0
	}
	switch answer.Kind {
	case Admitted:
		removal.Phase, removal.due = Terminating, now.Add(lookInterval)
	case Absent:
		removal.Phase = Gone
	case Refused:
		removal.Phase = Rejected
	case TooMany:
		removal.Phase = Held
		if answer.After > 0 {
			removal.due = now.Add(min(max(answer.After, minInterval), maxInterval))
		}
	case Present:
		removal.Phase = Failing
	case Unavailable:
		if removal.errors++; removal.errors >= maxErrors {
			removal.Phase = Rejected
		} else if removal.Phase != Terminating {
			removal.Phase = Failing
		}
	case Interrupted:
	}
}

// Ended reports whether nothing more is to be sent.
func (p *Plan) Ended() bool {
	return !slices.ContainsFunc(p.Removals, func(removal Removal) bool { return !removal.ended() })
}

// InFlight reports whether an answer is to come.
func (p *Plan) InFlight() bool {
	return slices.ContainsFunc(p.Removals, func(removal Removal) bool { return removal.inFlight })
}

// Left returns the number of pods that are not gone.
func (p *Plan) Left() int {
	left := 0
	for _, removal := range p.Removals {
		if removal.Phase != Gone {
			left++
		}
	}
	return left
}
