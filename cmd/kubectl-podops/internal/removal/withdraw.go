package removal

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// Remains is what remains of a request on its pod.
type Remains int

// The remains.
const (
	Nothing Remains = iota // no record of the user
	Record                 // a record of the user, with the lifecycle that it began
	Removed                // the pod terminates, or is gone
)

// RequestRemains returns what remains of a user's request for a pod; live is the pod of the name, nil for none. A
// lifecycle that another client has requested is not the user's to withdraw.
func RequestRemains(pod Pod, live *corev1.Pod, user string) Remains {
	switch {
	case live == nil || live.UID != pod.UID || live.DeletionTimestamp != nil:
		return Removed
	case deferreddelete.IsRequestedBy(live, user):
		return Record
	default:
		return Nothing
	}
}

// RequestLapse returns the time after which PodOps withdraws the request that a pod has a record of, counted from the
// last request: the clocks of user and manager may differ.
func RequestLapse(live *corev1.Pod) time.Duration {
	record, ok := deferreddelete.Pending(live)
	if !ok {
		return 0
	}
	state := deferreddelete.State{Pod: live, Record: record, Withheld: len(podstate.WithheldBy(live.Annotations)) > 0}
	_, _, left := deferreddelete.Next(state, deferreddelete.LastSeen(record))
	return left
}
