// Package heldpod keeps the promises that held deletes are (package promise). Begin
// runs on every replica and puts the lifecycle pod-delete on a pod whose delete was
// held here. Keeper runs on the leader: it deletes the pod once it may, for owners
// that would take long to ask again, and lets go of pods that their owner no longer
// wants gone.
package heldpod
