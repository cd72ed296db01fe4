package sandbox

import (
	"fmt"
	"syscall"
)

// limitProcess sets limits on its own process, which cannot be raised again.
func limitProcess() error {
	for _, limit := range []struct {
		name     string
		resource int
		soft     uint64
		hard     uint64
	}{
		// At the soft limit the process gets a signal; the child ends then.
		{"CPU", syscall.RLIMIT_CPU, maxCPUSeconds, maxCPUSeconds + 1},
		// RLIMIT_AS is not used: Go reserves much address space and uses little of it.
		{"memory", syscall.RLIMIT_DATA, ChildBytes, ChildBytes},
		{"core dump", syscall.RLIMIT_CORE, 0, 0},
		{"file size", syscall.RLIMIT_FSIZE, 0, 0},
		{"open files", syscall.RLIMIT_NOFILE, maxFiles, maxFiles},
	} {
		if err := syscall.Setrlimit(limit.resource, &syscall.Rlimit{Cur: limit.soft, Max: limit.hard}); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
	}
	return nil
}
