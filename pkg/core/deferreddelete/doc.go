// Package deferreddelete decides which deletes and evictions of pods are held, and when the lifecycles
// that they begin end. It is pure.
//
// Decide returns the answer to a request that comes before the pod may be operated on: the pod begins the
// lifecycle pod-delete, and its annotation records the Request (Pending). A request of a client waits in
// admission, and passes itself once the pod is prepared (Answer); a controller gets 429, and repeats its
// request. PodOps removes a pod itself only for the label to-delete and for StatefulSets, whose controller
// does not repeat its delete. A request that is not repeated, or that its owner does not want any more,
// ends with its lifecycle (Next, and PlanFor for the pods of ReplicaSets).
//
// The user of a request does not show its reason: unless kube-controller-manager runs with
// --use-service-account-credentials, the garbage collector, the taint manager and the controllers of
// workloads share one user. The state of owner and pod shows it.
package deferreddelete
