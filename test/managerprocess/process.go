// Package managerprocess runs the manager as a process of its own, with the rights of its
// ServiceAccount.
package managerprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// readyPatience is the timeout of AwaitReady.
	readyPatience = 2 * time.Minute

	// endPatience is the timeout of the end after SIGTERM.
	endPatience = 15 * time.Second

	tailLines = 40
)

// ErrEnded means that the process has ended.
var ErrEnded = errors.New("the manager has ended")

// Options describe a process.
type Options struct {
	Command []string // the program and its arguments
	Log     string   // path of the file with its output
	Append  bool     // keeps the earlier content of Log
	Probe   string   // address of /readyz
}

// Process is a manager that was started. It is safe for concurrent use.
type Process struct {
	options Options
	command *exec.Cmd
	ended   chan struct{}
	err     error // valid after ended is closed
}

// Start starts a process. The kernel kills it when the calling program ends.
func Start(options Options) (*Process, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if options.Append {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	log, err := os.OpenFile(options.Log, flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the manager: %w", err)
	}
	defer log.Close()
	p := &Process{options: options, command: exec.Command(options.Command[0], options.Command[1:]...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Err waits for the end of the process, and returns ErrEnded with the end of its log.
func (p *Process) Err() error {
	<-p.ended
	return fmt.Errorf("%w: %w\n%s", ErrEnded, p.err, p.Tail())
}

// ExitCode waits for the end of the process, and returns its exit code; -1 when a signal has ended it.
func (p *Process) ExitCode() int {
	<-p.ended
	return p.command.ProcessState.ExitCode()
}

// CPU waits for the end of the process, and returns the CPU time that it used.
func (p *Process) CPU() time.Duration {
	<-p.ended
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ready returns an error unless the readiness endpoint returns 200.
func (p *Process) Ready() error {
	answer, err := http.Get("http://" + p.options.Probe + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz returns %s", answer.Status)
	}
	return nil
}

// AwaitReady waits until the process is ready. It returns Err if the process ends before.
func (p *Process) AwaitReady(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, readyPatience)
	defer stop()
	for p.Ready() != nil {
		select {
		case <-p.ended:
			return p.Err()
		case <-ctx.Done():
			return fmt.Errorf("the manager is not ready: %w\n%s", context.Cause(ctx), p.Tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// Signal sends a signal. It returns an error if the process has ended.
func (p *Process) Signal(signal os.Signal) error { return p.command.Process.Signal(signal) }

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended already
	<-p.ended
}

// End sends SIGTERM, and kills the process if it does not end in time.
func (p *Process) End() {
	_ = p.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(endPatience):
		p.Kill()
	}
}

// Log returns the content of the log; the error of reading it in its place.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.options.Log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	lines := bytes.Split(bytes.TrimSpace([]byte(p.Log())), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n")))
}

// Ports are below the range from which Linux takes the ports of outgoing connections: such a port could be in use
// before the process listens.
const (
	firstPort = 10000
	lastPort  = 32000
	portTries = 1000
)

// FreeAddress returns a local address on which no process listens.
func FreeAddress() (string, error) {
	var err error
	for range portTries {
		var listener net.Listener
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort)))
		if err == nil {
			return listener.Addr().String(), listener.Close()
		}
	}
	return "", fmt.Errorf("finding a free port from %d to %d: %w", firstPort, lastPort, err)
}
