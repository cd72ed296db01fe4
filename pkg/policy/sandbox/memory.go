//go:build !race

package sandbox

// maxDataBytes is where the system gives a child no more memory.
const maxDataBytes = 256 << 20
