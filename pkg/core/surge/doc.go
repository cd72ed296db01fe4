// Package surge decides for which pods a Deployment starts another pod before they go, where an availablePolicy with the
// field surge withholds them.
//
// The Deployment itself becomes the controller of such a pod, in place of its ReplicaSet. The ReplicaSet then has a pod too few,
// and starts one; the Deployment is not scaled, so its own controller, an autoscaler and a GitOps tool have nothing to undo. Rules count
// both pods, and permit the first once the other is available. A pod that stays is left to its ReplicaSet again, which has
// a pod too many then. All state is on the pod, so that each step may be the last of a manager.
package surge
