package processes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// process is a process of a container, with its probe.
type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed at its end
	ready   chan bool     // changes of the readiness
}

// startProcess starts a process, which appends its output to the log, and its probe.
func startProcess(ctx context.Context, c command, log, dir string, probe *probe) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer file.Close()
	p := &process{command: exec.Command(c.path, c.args...), ended: make(chan struct{}), ready: make(chan bool)}
	p.command.Stdout, p.command.Stderr, p.command.Dir = file, file, dir
	p.command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, c.environment...)
	// The kernel ends it with this program.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.path, err)
	}
	go func() {
		_ = p.command.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	if probe != nil {
		go p.probe(ctx, *probe)
	}
	return p, nil
}

func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = p.command.Process.Signal(s) // it may have ended just now
	}
}

// exitCode returns the exit code after the end, 128 + n after signal n.
func (p *process) exitCode() int32 {
	<-p.ended
	if s, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int32(128 + s.Signal())
	}
	return int32(p.command.ProcessState.ExitCode())
}

// probe is the readiness probe of a container.
type probe struct {
	url                         string
	period, timeout             time.Duration
	failuresNeeded, successNeed int32
}

// startPeriod is the period until the first success, which tests wait for.
const startPeriod = 200 * time.Millisecond

var errProbe = errors.New("a readiness probe is an HTTP request to a port of the container")

// probeOf returns the readiness probe of a pod's container, nil if it has no probe.
func probeOf(pod *corev1.Pod) (*probe, error) {
	container := pod.Spec.Containers[0]
	spec := container.ReadinessProbe
	if spec == nil {
		return nil, nil
	}
	if spec.HTTPGet == nil {
		return nil, errProbe
	}
	port := spec.HTTPGet.Port.IntVal
	if spec.HTTPGet.Port.Type == intstr.String {
		for _, p := range container.Ports {
			if p.Name == spec.HTTPGet.Port.StrVal {
				port = p.ContainerPort
			}
		}
	}
	if port == 0 {
		return nil, errProbe
	}
	seconds := func(n int32) time.Duration { return time.Duration(max(n, 1)) * time.Second }
	return &probe{
		url:    "http://" + pod.Status.PodIP + ":" + strconv.Itoa(int(port)) + spec.HTTPGet.Path,
		period: seconds(spec.PeriodSeconds), timeout: seconds(spec.TimeoutSeconds),
		failuresNeeded: max(spec.FailureThreshold, 1), successNeed: max(spec.SuccessThreshold, 1),
	}, nil
}

// probe sends changes of the readiness until the process ends.
func (p *process) probe(ctx context.Context, spec probe) {
	client := &http.Client{Timeout: spec.timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	var ready bool
	var failures, successes int32
	period := min(startPeriod, spec.period)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ended:
			return
		case <-time.After(period):
		}
		if succeeds(ctx, client, spec.url) {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		now := ready
		if successes >= spec.successNeed {
			now, period = true, spec.period
		} else if failures >= spec.failuresNeeded {
			now = false
		}
		if now == ready {
			continue
		}
		select {
		case p.ready <- now:
			ready = now
		case <-p.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func succeeds(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode >= http.StatusOK && answer.StatusCode < http.StatusBadRequest
}
