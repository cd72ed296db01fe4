// Package replicasetscale decides how far a ReplicaSet of controlled pods may be scaled down, and
// which of its pods leave. It is pure.
//
// Pods begin the lifecycle pod-delete for exactly the number of pods that a ReplicaSet has too many, in the order
// in which the ReplicaSet controller would delete them, and the lowest deletion cost makes it choose the
// same pods.
//
// Every lowering passes, and deletes of pods that may not go yet are held, except a step of a rolling update: it
// is kept while its pods may not be deleted. Admission stores the number of pods that have not been granted
// operate, and records the number that was requested in the annotation desired-replicas. That annotation
// is the demand. The controller of Deployments takes the kept number quietly: it counts spec.replicas of its
// ReplicaSets, so a rollout never exceeds replicas + maxSurge.
package replicasetscale
