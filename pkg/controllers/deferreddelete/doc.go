// Package deferreddelete begins and ends the lifecycles of deletes and evictions that are held. Starter runs
// on every replica and begins the lifecycle pod-delete on a pod whose delete this replica reviews. PendingDeletes and
// ReplicaSetDeletes run on the leader: they cancel the lifecycle of a pod whose delete is not wanted any more, and delete
// pods for who cannot repeat the request.
package deferreddelete
