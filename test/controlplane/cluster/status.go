package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"
	"time"
)

// ErrNotUp is the error of Status when there is no healthy cluster.
var ErrNotUp = errors.New("the cluster is not up")

// Status writes the state of the cluster in dir to out. It returns nil when the cluster is
// healthy, and else an error that wraps ErrNotUp and names the cause.
func Status(ctx context.Context, dir string, now time.Time, out io.Writer) error {
	c, err := readConfig(dir)
	if errors.Is(err, errNoCluster) {
		return fmt.Errorf("%w: %w", ErrNotUp, err)
	}
	if err != nil {
		return err
	}
	r, err := readReport(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it was never started", ErrNotUp)
	}
	if err != nil {
		return err
	}
	c.write(out, r, now)
	return c.diagnose(ctx, r)
}

func (c config) write(out io.Writer, r report, now time.Time) {
	fmt.Fprintf(out, "server      %s\nkubeconfig  %s\naudit log   %s\nnodes       %d\n\n", c.server(), c.Kubeconfig, c.file(auditLogFile), len(c.Nodes))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tAGE\tLOG")
	for _, component := range r.Components {
		state := "running"
		if !component.Process.alive() {
			state = "ended"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", component.Name, component.Process.PID, state,
			now.Sub(component.Since).Round(time.Second), c.log(component.Name))
	}
	table.Flush()
}

// diagnose returns nil when the cluster is healthy.
func (c config) diagnose(ctx context.Context, r report) error {
	switch {
	case r.Phase == phaseFailed || r.Phase == phaseStopped:
		return fmt.Errorf("%w: %s", ErrNotUp, r.Reason)
	case !r.Supervisor.alive():
		return fmt.Errorf("%w: its supervisor was killed", ErrNotUp)
	case r.Phase == phaseStarting:
		return fmt.Errorf("%w yet: it is starting", ErrNotUp)
	}
	api, err := c.api()
	if err != nil {
		return err
	}
	if err := c.allHealthy(ctx, api); err != nil {
		return fmt.Errorf("%w: %w", ErrNotUp, err)
	}
	if err := api.usable(ctx, len(c.Nodes)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotUp, err)
	}
	return nil
}
