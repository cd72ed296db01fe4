// Package plan decides on the changes at a provider and of finalizers on pods. It is pure:
// (expected, current, pods) in, changes out, sorted by id, so that equal inputs give equal plans.
package plan
