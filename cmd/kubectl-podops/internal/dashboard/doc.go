// Package dashboard implements kubectl podops dashboard: a page that shows workloads while pods are
// operated on, served on a loopback address of the user's machine.
package dashboard
