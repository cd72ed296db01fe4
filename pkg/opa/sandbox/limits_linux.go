package sandbox

import (
	"fmt"
	"syscall"
)

// limitProcess sets limits on the process it runs in. There is no way back from them.
func limitProcess() error {
	for _, limit := range []struct {
		name     string
		resource int
		soft     uint64
		hard     uint64
	}{
		// Between the two a process is told; this one has nothing to do then but to end.
		{"CPU", syscall.RLIMIT_CPU, maxCPUSeconds, maxCPUSeconds + 1},
		// Not the address space: Go reserves much of that and uses little.
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
