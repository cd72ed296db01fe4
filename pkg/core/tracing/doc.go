// Package tracing derives the spans of lifecycles from values: two versions of a pod, an evaluation, a call.
// The trace id is a hash of the pod, the id of the lifecycle and the time when it began, which the pod
// records in a label. So every manager derives the same trace, and no component keeps state for it.
package tracing
