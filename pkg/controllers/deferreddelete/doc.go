// Package deferreddelete begins and ends the lifecycles of deletes and evictions that are held. Starter runs
// on every replica and begins the lifecycle pod-delete on a pod whose delete this replica reviews. Finisher runs on the
// leader: it deletes the pod once the lifecycle allows it, for owners that would repeat the delete
// late, and cancels the lifecycle of pods that their owner needs again.
package deferreddelete
