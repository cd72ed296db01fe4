//go:build !race

package sandbox

// ChildBytes is the memory limit of a worker. A module of 15 KB takes a third of it to be compiled.
const ChildBytes = 136 << 20
