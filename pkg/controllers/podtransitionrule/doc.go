// Package podtransitionrule asks the rules about the pods that wait, and gives the
// permits. One request is one namespace: all rules that may select the same pods are
// decided together, and one after the other.
//
// A round reads the facts, asks the policy engine, plans the permits (package permit),
// writes the reservations, stamps the pods, and tells people what it saw. It may stop
// at any instruction; the next round, here or in another process, takes up what is
// there.
package podtransitionrule
