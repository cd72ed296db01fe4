// Package replicasetscale decides how many pods a ReplicaSet of controlled pods has too many, and
// which of them leave. It is pure.
//
// Pods begin the lifecycle pod-delete for exactly the number of pods that a ReplicaSet has too many, in the order
// in which the ReplicaSet controller would delete them, and the lowest deletion cost makes it choose the
// same pods.
//
// Every lowering passes, and deletes of pods that may not go yet are held, except a step of a rolling update: it
// is answered with the number of pods that have not been granted operate. The controller of Deployments takes that
// number quietly: it counts spec.replicas of its ReplicaSets, so a rollout never exceeds replicas + maxSurge. No
// request is remembered: what the next step would be follows from the Deployment and its ReplicaSets as they are
// (Workload.Target), so a rollout that is undone or fails to become available wants no pod any more. A rollout that is
// paused wants the pods that its controller still removes.
package replicasetscale
