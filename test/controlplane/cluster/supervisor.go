package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the start of one component. The slowest takes some seconds; a
	// machine that compiles at the same time is slow.
	startTimeout = 2 * time.Minute
	// stopTimeout is the time that a component may take to end before it is killed. The
	// state does not outlive the cluster, so nothing of value is lost.
	stopTimeout = 2 * time.Second
	// pollInterval is the polling interval of conditions that cannot be watched.
	pollInterval = 100 * time.Millisecond
)

// phase is the phase of a supervisor.
type phase string

const (
	phaseStarting phase = "starting"
	phaseRunning  phase = "running"
	phaseFailed   phase = "failed"  // a component failed; all components have been ended
	phaseStopped  phase = "stopped" // by a signal, or after the parent has ended
)

// report is the state of a supervisor for other commands, in the state folder.
type report struct {
	Supervisor process          `json:"supervisor"`
	Phase      phase            `json:"phase"`
	Reason     string           `json:"reason,omitempty"` // of failed and stopped
	Components []componentState `json:"components"`
}

type componentState struct {
	Name    string    `json:"name"`
	Process process   `json:"process"`
	Since   time.Time `json:"since"`
}

var (
	errSignalled  = errors.New("stopped by a signal")
	errParentGone = errors.New("the process that the cluster was started for has ended")
)

// exit is the end of a component.
type exit struct {
	name string
	err  error // nil when it ended with code 0
}

type supervisor struct {
	config  config
	report  report
	running map[string]*exec.Cmd
	exits   chan exit
}

// Supervise runs the components of the cluster whose settings Up left in dir. It returns
// when it gets SIGTERM or SIGINT or when the parent process has ended, with nil, or when a
// component fails. In each case it has ended all components: a control plane with a missing
// or a restarted component would make tests fail in ways that are hard to diagnose.
//
// It must be called from the main goroutine of a process of its own, since the components
// are bound to the thread that starts them.
func Supervise(dir string) error {
	// The kernel kills the components when the thread that started them ends (Pdeathsig):
	// with this goroutine bound to it, that is when this process ends, for any reason.
	runtime.LockOSThread()
	c, err := readConfig(dir)
	if err != nil {
		return err
	}
	self, err := findProcess(os.Getpid())
	if err != nil {
		return err
	}
	s := &supervisor{
		config:  c,
		report:  report{Supervisor: self, Phase: phaseStarting},
		running: map[string]*exec.Cmd{},
		exits:   make(chan exit, 16),
	}
	signal.Ignore(syscall.SIGHUP) // the cluster outlives its terminal
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go c.watchForEnd(ctx, cancel)

	err = s.run(ctx)
	s.stop()
	s.report.Phase, s.report.Reason = phaseFailed, err.Error()
	if errors.Is(err, errSignalled) || errors.Is(err, errParentGone) {
		s.report.Phase = phaseStopped
		err = nil
	}
	return errors.Join(err, s.publish())
}

// watchForEnd cancels with a reason when the cluster must end.
func (c config) watchForEnd(ctx context.Context, cancel context.CancelCauseFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			cancel(errSignalled)
		case <-ticker.C:
			if c.Parent != nil && !c.Parent.alive() {
				cancel(errParentGone)
			}
		}
	}
}

// run starts everything and returns why it must end; never nil.
func (s *supervisor) run(ctx context.Context) error {
	if err := s.publish(); err != nil {
		return err
	}
	api, err := s.config.api()
	if err != nil {
		return err
	}
	for _, group := range s.config.startOrder() {
		for _, c := range group {
			if err := s.start(c); err != nil {
				return err
			}
		}
		for _, c := range group {
			if err := s.awaitHealth(ctx, api, c); err != nil {
				return err
			}
		}
	}
	s.report.Phase = phaseRunning
	if err := s.publish(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case e := <-s.exits:
		return s.failure(e)
	}
}

func (s *supervisor) start(c component) error {
	log, err := os.OpenFile(s.config.log(c.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer log.Close() // the component has its own descriptor
	cmd := exec.Command(s.config.binary(c.name), c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.config.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	s.running[c.name] = cmd
	go func() { s.exits <- exit{c.name, cmd.Wait()} }()

	started, err := findProcess(cmd.Process.Pid)
	if err != nil {
		started = process{PID: cmd.Process.Pid} // it has ended; the exit reports it
	}
	s.report.Components = append(s.report.Components, componentState{c.name, started, time.Now()})
	return s.publish()
}

// awaitHealth waits until c serves, or any component has ended.
func (s *supervisor) awaitHealth(ctx context.Context, api *apiClient, c component) error {
	if c.health == "" {
		return nil
	}
	deadline := time.After(startTimeout)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := api.healthy(ctx, c.health)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-s.exits:
			return s.failure(e)
		case <-deadline:
			return fmt.Errorf("%s does not serve after %s: %w\n%s", c.name, startTimeout, err, s.config.logTail(c.name))
		case <-ticker.C:
		}
	}
}

// failure returns the outcome of a component that ended, with the end of its log.
func (s *supervisor) failure(e exit) error {
	delete(s.running, e.name)
	outcome := "with code 0"
	if e.err != nil {
		outcome = e.err.Error()
	}
	return fmt.Errorf("%s has ended: %s\n%s", e.name, outcome, s.config.logTail(e.name))
}

// stop ends every component that runs, last started first, and returns when the last has
// ended.
func (s *supervisor) stop() {
	order := s.config.startOrder()
	for i := len(order) - 1; i >= 0; i-- {
		left := map[string]bool{}
		for _, c := range order[i] {
			if cmd := s.running[c.name]; cmd != nil {
				left[c.name] = true
				_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
			}
		}
		kill := time.After(stopTimeout)
		for len(left) > 0 {
			select {
			case e := <-s.exits:
				delete(s.running, e.name)
				delete(left, e.name)
			case <-kill:
				for name := range left {
					_ = s.running[name].Process.Kill()
				}
			}
		}
	}
}

func (s *supervisor) publish() error {
	if err := writeJSON(s.config.file(supervisorFile), s.report); err != nil {
		return fmt.Errorf("publishing the state of the supervisor: %w", err)
	}
	return nil
}
