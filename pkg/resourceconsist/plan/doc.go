// Package plan decides what to change at a provider and which finalizers to change on pods.
// It is pure: (expected, current, pods) in, changes out, sorted by id, so that equal inputs
// give equal plans.
package plan
