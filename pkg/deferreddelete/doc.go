// Package deferreddelete decides whether a DELETE of a pod passes, is deferred, or is dropped. It
// is pure.
//
// A delete that comes before the pod may be operated on is deferred: the client gets 429, and the
// pod begins the lifecycle pod-delete. When rules and traffic allow it, the next delete of the
// client passes, or PodOps deletes the pod. The lifecycle is cancelled when the owner no longer
// wants the pod gone.
//
// The user of a DELETE does not say why it came: unless kube-controller-manager runs with
// --use-service-account-credentials, the garbage collector, the taint manager and the
// ReplicaSet controller share one. The state of the owner and of the pod does.
package deferreddelete
