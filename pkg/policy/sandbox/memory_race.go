//go:build race

package sandbox

// maxDataBytes leaves room for the race detector, which takes several times the memory.
const maxDataBytes = 2 << 30
