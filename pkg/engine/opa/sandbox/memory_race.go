//go:build race

package sandbox

// ChildBytes allows for the race detector, which takes several times the memory.
const ChildBytes = 2 << 30
