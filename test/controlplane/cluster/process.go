package cluster

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// process identifies a process of this machine. A process id alone does not, since ids are
// reused.
type process struct {
	PID int `json:"pid"`
	// Start is the time the process started, in clock ticks since boot, as
	// field 22 of /proc/<pid>/stat has it.
	Start string `json:"start"`
}

// findProcess returns the process that has pid now. It fails when no process has pid, or
// when the process has ended and is not reaped yet.
func findProcess(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, fmt.Errorf("no process %d: %w", pid, err)
	}
	// The name, in parentheses, may contain any character; the rest is plain fields.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const state, start = 0, 19 // fields 3 and 22 of the line
	if len(fields) <= start {
		return process{}, fmt.Errorf("process %d: unknown format of /proc/%d/stat", pid, pid)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return process{}, fmt.Errorf("process %d has ended", pid)
	}
	return process{PID: pid, Start: fields[start]}, nil
}

// alive reports whether the process still runs.
func (p process) alive() bool {
	now, err := findProcess(p.PID)
	return err == nil && now == p
}

// signal sends s to the process if it still runs.
func (p process) signal(s syscall.Signal) {
	if p.alive() {
		// An error means that it has ended in between.
		_ = syscall.Kill(p.PID, s)
	}
}
