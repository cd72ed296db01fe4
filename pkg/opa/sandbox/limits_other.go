//go:build !linux

package sandbox

// limitProcess does nothing: on systems for development, the timeout of the parent is the only
// limit.
func limitProcess() error { return nil }
