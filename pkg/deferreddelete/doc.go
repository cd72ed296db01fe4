// Package deferreddelete decides whether a DELETE of a pod passes, is deferred, or is cancelled.
// It is pure.
//
// A delete that comes before the pod may be operated on is deferred: the client gets 429, and the
// pod begins the lifecycle pod-delete. When rules and traffic allow it, the next delete of the
// client passes, or PodOps deletes the pod. The lifecycle is cancelled when the owner needs the
// pod again.
//
// The user of a DELETE does not show its reason: unless kube-controller-manager runs with
// --use-service-account-credentials, the garbage collector, the taint manager and the
// ReplicaSet controller share one user. The state of the owner and of the pod shows it.
package deferreddelete
