package hostile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// cpuGroups is the hierarchy of CPU groups of cgroup v1.
const cpuGroups = "/sys/fs/cgroup/cpu"

// suiteShares is the weight of the suite in CPU time. Each session of other users of the machine has 1024.
const suiteShares = 16384

// outrankMachine moves this process, and with it each process that it starts, to a CPU group that comes before the
// rest of the machine, and returns how to leave it. Other programs on the machine would otherwise take CPU
// time from the control plane, and the waits of the neighbour would be theirs.
func outrankMachine() (leave func() error, err error) {
	group := filepath.Join(cpuGroups, fmt.Sprintf("podops-hostile-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, fmt.Errorf("creating a CPU group: %w", err)
	}
	self := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(filepath.Join(group, "cpu.shares"), []byte(strconv.Itoa(suiteShares)), 0o644); err != nil {
		return nil, fmt.Errorf("setting the weight of the CPU group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(self), 0o644); err != nil {
		return nil, fmt.Errorf("entering the CPU group: %w", err)
	}
	return func() error {
		if err := os.WriteFile(filepath.Join(cpuGroups, "cgroup.procs"), []byte(self), 0o644); err != nil {
			return fmt.Errorf("leaving the CPU group: %w", err)
		}
		if err := os.Remove(group); err != nil {
			return fmt.Errorf("removing the CPU group: %w", err)
		}
		return nil
	}, nil
}

// outranked returns the command that runs another command with a niceness. A kernel that groups the
// processes of a session (autogroup) compares niceness only within a session, and sessions by that of their
// group, so the command runs in a session of its own, of which the group has the niceness, too.
func outranked(niceness int, command ...string) []string {
	text := strconv.Itoa(niceness)
	return append([]string{
		"setsid", "nice", "-n", text, "/bin/sh", "-c",
		`[ ! -e /proc/self/autogroup ] || echo "$0" >/proc/self/autogroup; exec "$@"`, text,
	}, command...)
}
