// Package replicasetscale decides how far a ReplicaSet of controlled pods may be scaled down, and
// which of its pods leave. It is pure.
//
// A scale-down that comes before the pods may be deleted is kept: admission stores the number of
// pods that have not been granted operate, and records the number that was requested in the
// annotation desired-replicas. That annotation is the demand. Pods begin the lifecycle pod-delete
// for exactly the difference, in the order in which the ReplicaSet controller would delete them,
// and the lowest deletion cost makes it choose the same pods once the ReplicaSet is lowered.
//
// The controller of Deployments takes the kept number quietly: it counts spec.replicas of its
// ReplicaSets, so a rollout never exceeds replicas + maxSurge.
package replicasetscale
