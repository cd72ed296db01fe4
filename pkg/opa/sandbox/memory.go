//go:build !race

package sandbox

// ChildBytes is where the system gives a child no more memory. The largest modules that are accepted
// need half of it.
const ChildBytes = 192 << 20
