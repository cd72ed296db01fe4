// Package deferreddelete decides which deletes and evictions of pods are held, and when they are
// carried out or cancelled. It is pure.
//
// Decide returns the answer to a request that comes before the pod may be operated on: the client gets
// 429, and the pod begins the lifecycle pod-delete. Its annotation records the Request (Pending). When
// rules and traffic allow it, PodOps carries the request out, or the client does when it repeats it;
// when the request lapses, the lifecycle is cancelled (Next, and PlanFor for the pods of ReplicaSets).
//
// The user of a request does not show its reason: unless kube-controller-manager runs with
// --use-service-account-credentials, the garbage collector, the taint manager and the controllers of
// workloads share one user. The state of the owner and of the pod shows it.
package deferreddelete
