//go:build !unix

package sandbox

import (
	"os"
	"os/exec"
)

// isolate does nothing: a cancelled command is killed without its children.
func isolate(*exec.Cmd) {}

// kill ends a process.
func kill(process *os.Process) error { return process.Kill() }

// wasKilled returns false: there are no signals.
func wasKilled(*os.ProcessState) bool { return false }
