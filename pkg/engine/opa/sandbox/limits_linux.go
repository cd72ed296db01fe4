package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limit is a limit of the operating system on a process.
type limit struct {
	name       string
	resource   int
	soft, hard uint64
}

// limitProcess sets limits on its own process, which cannot be raised again. It can open no file and no socket.
func limitProcess() error {
	memory, err := memoryLimit()
	if err != nil {
		return err
	}
	return set(
		limit{"memory", syscall.RLIMIT_DATA, memory, memory},
		limit{"open files", syscall.RLIMIT_NOFILE, 0, 0},
	)
}

// startBytes is roughly the memory that a process uses at its start.
const startBytes = 12 << 20

// memoryLimit returns the limit on mapped memory with which the process uses at most ChildBytes: what it has
// mapped at its start, such as the stacks of its threads, and hardly uses is added.
func memoryLimit() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the mapped memory: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmData:")
	mapped := uint64(0)
	if _, err := fmt.Sscanf(rest, "%d kB", &mapped); err != nil {
		return 0, fmt.Errorf("reading the mapped memory: %w", err)
	}
	return mapped<<10 + ChildBytes - startBytes, nil
}

// set sets limits, and gives up privileges.
func set(limits ...limit) error {
	limits = append(limits,
		limit{"core dump", syscall.RLIMIT_CORE, 0, 0},
		limit{"file size", syscall.RLIMIT_FSIZE, 0, 0},
	)
	for _, limit := range limits {
		// RLIMIT_AS is not used: Go reserves much address space and uses little of it.
		if err := syscall.Setrlimit(limit.resource, &syscall.Rlimit{Cur: limit.soft, Max: limit.hard}); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
	}
	if err := giveUpPrivileges(); err != nil {
		return fmt.Errorf("privileges: %w", err)
	}
	return nil
}

// giveUpPrivileges has every thread of the process give up new privileges. A binary with cgo can do so only for this thread and the
// threads that it starts.
func giveUpPrivileges() error {
	_, _, failed := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if failed == syscall.ENOTSUP {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) //nolint:wrapcheck // the caller adds what failed
	}
	if failed != 0 {
		return failed
	}
	return nil
}

// cpuTime returns the CPU time of a process; 0 once it was reaped.
func cpuTime(pid int, _ time.Time) time.Duration {
	const clockOfProcess = 2 // CPUCLOCK_SCHED of the kernel; the other bits are the inverted id
	var at unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|clockOfProcess), &at) != nil { //nolint:gosec // ids of processes are small
		return 0
	}
	return time.Duration(at.Nano())
}

// endWithParent has the kernel kill a process when its parent ends.
func endWithParent(command *exec.Cmd) { command.SysProcAttr.Pdeathsig = syscall.SIGKILL }

// runningBinary is the binary of this process, even if its file was replaced since.
const runningBinary = "/proc/self/exe"
