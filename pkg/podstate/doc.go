// Package podstate describes where a pod stands in its lifecycles: the phase, its operations, and what it
// waits for. It is pure: a pod, and what is known of its Services, in; a State out. The state machine itself
// is package lifecycle.
package podstate
