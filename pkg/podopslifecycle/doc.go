// Package podopslifecycle is the library of operation controllers: programs that restart, update, resize
// or delete pods. It requests operations by the labels of PodOpsLifecycle and reads the answers of
// PodOps from them. docs/operation-controllers.md is the guide, docs/lifecycle.md the protocol.
//
//	IsDuringOps ──no──► Begin ──► (PodOps: rules, traffic off) ──► AllowOps ──► operate ──► Finish
//	                      └───────────────────── Undo ◄────────────────┘
//
// A controller describes itself with a LifecycleAdapter and calls these functions from its Reconcile
// with the pod that it read. Each call sends at most one request, unless it meets a conflict:
//
//   - A call writes only the fields that it changes, as a merge patch with the resourceVersion of the
//     pod that it decided from. Labels, finalizers and fields that the caller's view of the pod lacks
//     survive.
//   - After a conflict, the call reads the pod from the API server, decides again from that pod, and
//     writes again, five times at most. So Undo followed by Begin on the same object succeeds,
//     although PodOps writes the readiness gate between the two. The pod is read by a patch without
//     content: its answer is the pod as it is stored, while Get of a caching client may return the
//     version that just met the conflict. Only the right to patch pods is needed.
//   - After success the object is the pod in the answer, with the labels that admission added. After an
//     error it is as it was.
//
// Begin, BeginWithCleaningOld, Finish and Undo have the signatures of the developer's guide, which have
// no context: they end after CallTimeout. Each has a variant with a context, such as BeginContext, which
// is preferable wherever there is a context.
//
// A function of this package returns an error of a type below where the caller can act on it
// (TypeInUseError, OtherTypeError, InvalidAdapterError, ErrNotControlled, ErrTerminating, ErrStale),
// and otherwise the error of the client, wrapped.
package podopslifecycle
