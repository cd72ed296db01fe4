//go:build race

package sandbox

// ChildBytes leaves room for the race detector, which takes several times the memory.
const ChildBytes = 2 << 30
