// Package explain answers why a pod, a workload or a rule waits, and what helps: reasons in the order of
// their weight, with the rule and its numbers, the pods in the way, the finalizers that are left or missing,
// times, and commands. It is pure: a snapshot of a namespace in, an Explanation out. Messages are those of
// events and status; every kind of reason is a Situation with a section of docs/explain.md.
package explain
