//go:build unix

package sandbox

import (
	"os"
	"os/exec"
	"syscall"
)

// isolate gives a command a process group of its own, which is killed as a whole.
func isolate(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// kill ends a process and its children.
func kill(process *os.Process) error { return syscall.Kill(-process.Pid, syscall.SIGKILL) }

// wasKilled reports whether a process ended with SIGKILL.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
