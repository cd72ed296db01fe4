//go:build !race

package sandbox

// ChildBytes is the memory limit of a child. The largest accepted modules need half of it.
const ChildBytes = 192 << 20
