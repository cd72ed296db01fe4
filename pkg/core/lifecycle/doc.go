// Package lifecycle is the PodOpsLifecycle state machine (docs/lifecycle.md). It is the
// only package that decides which labels and which gate a pod has; admission and the
// controllers call it and write its result. It is pure: no client, no context, and the
// clock is an argument.
//
// Each id on a pod advances independently, and all ids share the pod's traffic:
//
//	begin        operating + operation-type          -> pre-check
//	permit       every PreCheck rule passed          -> pre-checked, prepare; gate False
//	operate      no protection finalizer, not Ready  -> operate
//	finish       operating removed                   -> operated, then post-check
//	post permit  every PostCheck rule passed         -> post-checked, complete; gate True
//	available    expected finalizers present, Ready  -> service-available, ids removed
//
// An id is waiting (pre-check), permitted (prepare or operate), finished (operated,
// post-check) or complete. The pod is busy while any id is permitted. While it is
// busy, finished ids do not advance to post-check and complete ids lose complete: the
// pod is going offline, or is offline, for another id. Traffic comes back when every
// finished id has passed its PostCheck. An id that only waits holds back no other id.
package lifecycle
