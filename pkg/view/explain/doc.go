// Package explain returns why a pod, a workload or a rule waits, and the remedies: reasons in the order of
// their weight, with the rule and its numbers, the pods in the way, the finalizers that are left or missing,
// times, and commands. It is pure: it maps a snapshot of a namespace to an Explanation. Messages are the
// messages of events and status; every kind of reason is a Situation with a section of docs/explain.md.
package explain
