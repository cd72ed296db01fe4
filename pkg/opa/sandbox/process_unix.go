//go:build unix

package sandbox

import (
	"os"
	"os/exec"
	"syscall"
)

// isolate gives a command a process group of its own, which is killed as a whole when the command
// is cancelled.
func isolate(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}

// wasKilled reports whether a process ended with SIGKILL.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
