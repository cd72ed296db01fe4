package install_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// onTerminal runs a command on a terminal of its own, where typed is typed, and returns what the terminal shows.
func onTerminal(command *exec.Cmd, typed string) (shown string, err error) {
	GinkgoHelper()
	controller, terminal := openTerminal()
	defer func() { _ = controller.Close() }()
	command.Stdin, command.Stdout, command.Stderr = terminal, terminal, terminal
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	Expect(command.Start()).To(Succeed())
	Expect(terminal.Close()).To(Succeed())
	_, err = controller.WriteString(typed)
	Expect(err).NotTo(HaveOccurred())
	// Reading ends with an error when the last process has closed the terminal.
	output, _ := io.ReadAll(controller)
	return string(output), command.Wait()
}

// openTerminal returns both ends of a new pseudo-terminal.
func openTerminal() (controller, terminal *os.File) {
	GinkgoHelper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0)).To(Succeed())
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	return controller, terminal
}
