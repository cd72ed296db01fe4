package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/podops-dev/podops/test/controlplane/filelock"
)

// usableTimeout bounds the whole start, from the first process to nodes on which
// pods are scheduled.
const usableTimeout = 3 * time.Minute

// Up starts the cluster that o describes and returns when Deployments get running pods on
// it. It keeps a healthy cluster that is already up, even if o describes another, and
// replaces an unhealthy cluster. It reports progress on out, one line at a time.
func Up(ctx context.Context, o Options, out io.Writer) error {
	c, err := newConfig(o)
	if err != nil {
		return err
	}
	unlock, err := filelock.Lock(ctx, c.Dir+".lock", func() {
		fmt.Fprintln(out, "waiting for another up or down of this cluster")
	})
	if err != nil {
		return err
	}
	defer unlock()

	began := time.Now()
	if running, ok := wellAt(ctx, c.Dir); ok {
		fmt.Fprintf(out, "the cluster in %s is already up: %s, %d nodes\n", c.Dir, running.server(), len(running.Nodes))
		running.Kubeconfig = c.Kubeconfig
		return running.publishKubeconfig()
	}
	if err := remove(c.Dir, out); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		return err
	}
	fmt.Fprintf(out, "starting a cluster in %s\n", c.Dir)
	supervisor, err := c.startSupervisor()
	if err != nil {
		return err
	}
	if err := c.awaitUsable(ctx, supervisor); err != nil {
		// The logs stay for debugging; the processes do not.
		endSupervisor(c.Dir, supervisor)
		return err
	}
	if err := c.publishKubeconfig(); err != nil {
		return err
	}
	fmt.Fprintf(out, "ready after %.1fs: %s, %d nodes, kubeconfig %s\n", time.Since(began).Seconds(), c.server(), len(c.Nodes), c.Kubeconfig)
	return nil
}

// wellAt returns the cluster in dir when it is up and all components answer.
func wellAt(ctx context.Context, dir string) (config, bool) {
	c, err := readConfig(dir)
	if err != nil {
		return config{}, false
	}
	r, err := readReport(dir)
	if err != nil || r.Phase != phaseRunning || !r.Supervisor.alive() {
		return config{}, false
	}
	api, err := c.api()
	if err != nil {
		return config{}, false
	}
	return c, c.allHealthy(ctx, api) == nil
}

// allHealthy returns the first error of a component, or the error of the API.
func (c config) allHealthy(ctx context.Context, api *apiClient) error {
	for _, group := range c.startOrder() {
		for _, component := range group {
			if component.health == "" {
				continue
			}
			if err := api.healthy(ctx, component.health); err != nil {
				return fmt.Errorf("%s: %w", component.name, err)
			}
		}
	}
	_, err := api.get(ctx, api.server+"/api/v1/nodes")
	return err
}

// prepare creates the state folder with all files of the supervisor.
func (c config) prepare() error {
	for _, component := range []component{c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler(), c.kubelets()} {
		if _, err := os.Stat(c.binary(component.name)); err != nil {
			return fmt.Errorf("finding the programs of the control plane (run controlplane build): %w", err)
		}
	}
	if err := os.MkdirAll(c.file(logsFolder), 0o755); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	if err := writeJSON(c.file(configFile), c); err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	return c.writeFiles()
}

// startSupervisor starts this program as a separate process, in its own session, so that it
// outlives this process and its terminal.
func (c config) startSupervisor() (process, error) {
	self, err := os.Executable()
	if err != nil {
		return process{}, fmt.Errorf("finding this program: %w", err)
	}
	log, err := os.Create(c.log("supervisor"))
	if err != nil {
		return process{}, fmt.Errorf("opening the log of the supervisor: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(self, "supervise", "--dir", c.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("starting the supervisor: %w", err)
	}
	started, err := findProcess(cmd.Process.Pid)
	if err != nil {
		return process{}, fmt.Errorf("the supervisor has ended at once: %w\n%s", err, c.logTail("supervisor"))
	}
	go func() { _ = cmd.Wait() }() // reaps it; its result is in its report
	return started, nil
}

// awaitUsable waits until pods can run, or the supervisor has ended.
func (c config) awaitUsable(ctx context.Context, supervisor process) error {
	ctx, cancel := context.WithTimeout(ctx, usableTimeout)
	defer cancel()
	api, err := c.api()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		missing := c.started(supervisor)
		if errors.Is(missing, errGivenUp) {
			return missing
		}
		if missing == nil {
			missing = api.usable(ctx, len(c.Nodes))
		}
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster: %w: %w\n%s", context.Cause(ctx), missing, c.logTail("kubelets"))
		case <-ticker.C:
		}
	}
}

// errGivenUp means that the supervisor has ended.
var errGivenUp = errors.New("the control plane did not start")

// started returns nil when the supervisor has started everything, errGivenUp with the
// reason when it has ended, and else its progress.
func (c config) started(supervisor process) error {
	alive := supervisor.alive() // before its report is read: the report is its last action
	r, err := readReport(c.Dir)
	switch {
	case err == nil && r.Phase == phaseRunning && alive:
		return nil
	case err == nil && (r.Phase == phaseFailed || r.Phase == phaseStopped):
		return fmt.Errorf("%w: %s", errGivenUp, r.Reason)
	case !alive:
		return fmt.Errorf("%w: the supervisor has ended\n%s", errGivenUp, c.logTail("supervisor"))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		return fmt.Errorf("%d components started", len(r.Components))
	}
}

func (c config) publishKubeconfig() error {
	data, err := os.ReadFile(c.file("kubeconfigs", "admin"))
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	if err := writeFile(c.Kubeconfig, data, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

func readReport(dir string) (report, error) {
	var r report
	err := readJSON(filepath.Join(dir, supervisorFile), &r)
	return r, err
}
