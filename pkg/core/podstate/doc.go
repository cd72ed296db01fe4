// Package podstate describes the state of a pod in its lifecycles: the phase, the operations, and the
// condition for the next phase. It is pure: it maps a pod and the known facts of its Services to a State.
// The state machine itself is package lifecycle.
package podstate
