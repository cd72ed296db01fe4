// Package promise decides what becomes of a DELETE of a pod (design section 6). It is
// pure.
//
// A delete that comes before the pod may be operated on is held: the actor is told to
// come back (429), and the pod begins the lifecycle pod-delete. That is a promise. It
// is kept by letting the actor through when it comes again, or by finishing the delete
// for it; and it is taken back when the owner no longer wants the pod gone.
package promise
