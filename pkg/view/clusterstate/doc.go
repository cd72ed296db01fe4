// Package clusterstate has the objects of one namespace that explain the states of its pods, as one
// value: pods, workloads, rules, Services, adapters and budgets. It is pure: the shells that read or
// watch a cluster fill in a Snapshot, and views and explanations are functions of it.
package clusterstate
