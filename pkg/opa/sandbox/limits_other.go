//go:build !linux

package sandbox

// limitProcess does nothing: where the manager is developed, not run, the clock of the parent is the
// only limit.
func limitProcess() error { return nil }
