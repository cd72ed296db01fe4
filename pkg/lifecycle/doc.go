// Package lifecycle is the PodOpsLifecycle state machine (design section 3). It is
// the one place that knows which labels and which gate a pod should have; admission
// and the controllers call it and write what it says. It is pure: no client, no
// context, and the clock is an argument.
//
// Each id on a pod goes its own way, and all ids share the pod's traffic:
//
//	begin        operating + operation-type          -> pre-check
//	permit       every PreCheck rule passed          -> pre-checked, prepare; gate False
//	operate      no protection finalizer, not Ready  -> operate
//	finish       operating removed                   -> operated, then post-check
//	post permit  every PostCheck rule passed         -> post-checked, complete; gate True
//	available    expected finalizers present, Ready  -> service-available, ids gone
//
// An id is waiting (pre-check), permitted (prepare or operate), finished (operated,
// post-check) or complete. The pod is busy while any id is permitted. While it is
// busy, finished ids do not go on to post-check and complete ids lose complete: the
// pod is about to go, or is, offline for somebody else. Traffic comes back when every
// finished id has passed its PostCheck. An id that only waits holds nobody back.
package lifecycle
