//go:build unix

package sandbox

import (
	"os/exec"
	"syscall"
)

// isolate gives a command a process group of its own, which is killed as a whole when the command
// is cancelled.
func isolate(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
