// Package podtransitionrule evaluates the rules for the pods that wait, and grants the permits. A request of
// its queue is one namespace: all rules that may select the same pods are evaluated together, and the rounds
// of a namespace follow each other.
//
// A round is
//
//	snapshot -> evaluate -> allocate -> write -> report
//
// snapshot reads the pod index and compiles the rules; evaluate returns the verdicts of all rules; allocate
// gives slots and permits in order (packages evaluation and permit); write stores the reservations, permits and
// calls; report writes the human-readable status and the annotations. Each step takes a value and returns a
// value. State between rounds is in state. A round may stop at any instruction; the next round, here or in
// another process, continues with the stored objects.
package podtransitionrule
