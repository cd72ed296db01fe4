// Package sim simulates the parts of a cluster that tests of pure code need: an API server
// with optimistic locking, a kubelet that reports conditions, and a clock. Everything is in
// memory and deterministic, so property tests can replay a schedule.
package sim
