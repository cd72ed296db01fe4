//go:build !linux

package sandbox

import (
	"os/exec"
	"time"
)

// limitProcess does nothing: on systems for development, the timeout of the parent is the only
// limit.
func limitProcess() error { return nil }

// cpuTime returns the time since a process began, because the system has no clocks of other processes.
func cpuTime(_ int, began time.Time) time.Duration { return time.Since(began) }

// endWithParent does nothing: a worker ends when its parent has closed the pipe.
func endWithParent(*exec.Cmd) {}

// runningBinary is empty: the path of the binary is used.
const runningBinary = ""
