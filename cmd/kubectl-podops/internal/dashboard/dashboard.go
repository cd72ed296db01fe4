package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/clusterstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/cluster"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/live"
)

const (
	// leastInterval is the shortest time between two states.
	leastInterval = 300 * time.Millisecond

	// refreshInterval is the longest time between two states: leases and events are not watched.
	refreshInterval = 15 * time.Second

	// share is the part of the time that a dashboard spends on making states, at most: 1 of share.
	share = 5
)

// verb is one run of dashboard.
type verb struct {
	env     *command.Environment
	flags   cluster.Flags
	port    int
	context string
	changes timeline.Changes
}

// Command returns the verb dashboard.
func Command(env *command.Environment) *cobra.Command {
	v := &verb{env: env}
	dashboard := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page on this machine that shows workloads, rules and withheld pods, live",
		Long: `Serve a page on this machine that shows workloads, rules and withheld pods, live.

The command prints an address with a token and serves the page until Ctrl-C: workloads,
their pods by phase, which pods a rule withholds and why, the budgets in use, load
balancers, and the phases of each pod over time. The page is read-only, has the rights of
your kubeconfig, and loads nothing from other hosts. The server listens on 127.0.0.1
only, and answers only requests that have the token.

With --all-namespaces it shows the namespaces that have controlled pods or
PodTransitionRules; others appear within half a minute.`,
		Example: `  # The workloads of the namespace of the kubeconfig
  kubectl podops dashboard

  # All namespaces, on a port of your choice
  kubectl podops dashboard -A --port 8642`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd.Context()) },
	}
	env.Cluster(dashboard)
	dashboard.Flags().BoolVarP(&v.flags.AllNamespaces, "all-namespaces", "A", false, "show all namespaces")
	dashboard.Flags().IntVar(&v.port, "port", 0, "port on 127.0.0.1; 0 for any free port")
	v.flags.AddManager(dashboard)
	return dashboard
}

// run serves the page until ctx ends.
func (v *verb) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	namespaces, err := v.namespaces(ctx)
	if err != nil {
		return err
	}
	raw, err := v.env.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	v.context = raw.CurrentContext
	if named := v.env.Config.Context; named != nil && *named != "" {
		v.context = *named
	}
	watch, err := v.watch(ctx, namespaces)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(v.port)))
	if err != nil {
		return fmt.Errorf("--port %d: %w", v.port, err)
	}
	events, token := newFeed(), newToken()
	handler, err := newServer(listener.Addr(), token, events)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: writeTimeout, MaxHeaderBytes: 1 << 16}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(v.env.Out, "http://%s/?token=%s\n", listener.Addr(), token); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(v.env.ErrOut, "Open this address in a browser. Ctrl-C ends the dashboard.")
	followed := make(chan error, 1)
	go func() { followed <- v.followAll(ctx, watch, namespaces, events) }()
	select {
	case err = <-served:
	case err = <-followed:
	case <-ctx.Done():
	}
	// Pages keep their streams open: a server that waits for them would not end.
	if closed := server.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// namespaces returns the namespaces to show.
func (v *verb) namespaces(ctx context.Context) ([]string, error) {
	reader, err := v.env.Client(ctx)
	if err != nil {
		return nil, err
	}
	namespaces, err := v.flags.Namespaces(ctx, v.env, reader)
	if err != nil {
		return nil, err
	}
	if len(namespaces) == 0 {
		return nil, errors.New("no namespace has a pod with the label kusionstack.io/control=true or a PodTransitionRule")
	}
	return namespaces, nil
}

// watched is a watch of namespaces, until stop.
type watched struct {
	*live.Watch
	stop context.CancelFunc
}

// watch watches namespaces.
func (v *verb) watch(ctx context.Context, namespaces []string) (watched, error) {
	ctx, stop := context.WithCancel(ctx)
	watch, err := live.Start(ctx, v.env, live.Options{
		ManagerNamespace: v.flags.ManagerNamespace, Namespaces: namespaces, Changes: &v.changes,
	})
	if err != nil {
		stop()
		return watched{}, err
	}
	return watched{watch, stop}, nil
}

// followAll publishes a state after each change, until ctx or the watch ends. With --all-namespaces it starts another watch once
// there are others.
func (v *verb) followAll(ctx context.Context, watch watched, namespaces []string, events *feed) error {
	recorded := newHistory(v.env.Now())
	for {
		others, err := v.follow(ctx, watch, namespaces, recorded, events)
		watch.stop()
		if err != nil {
			return err
		}
		if watch, err = v.watch(ctx, others); err != nil {
			return err
		}
		namespaces = others
	}
}

// follow publishes a state after each change, and returns the namespaces to follow once there are others.
func (v *verb) follow(ctx context.Context, watch watched, namespaces []string, recorded *history, events *feed) (others []string, err error) {
	listed := time.Now()
	for {
		began := time.Now()
		state, err := v.state(ctx, watch.Watch, namespaces, recorded)
		if err != nil {
			return nil, err
		}
		if err := events.publish("state", state); err != nil {
			return nil, err
		}
		if err := pause(ctx, watch, max(leastInterval, share*time.Since(began))); err != nil {
			return nil, err
		}
		if !v.flags.AllNamespaces || time.Since(listed) < refreshInterval {
			continue
		}
		listed = time.Now()
		// Without an answer the page shows that it is not up to date, and the next round lists them again.
		if others, err := v.namespaces(ctx); err == nil && !slices.Equal(others, namespaces) {
			return others, nil
		}
	}
}

// pause waits until a change, or the refreshInterval, and at least for a time.
func pause(ctx context.Context, watch watched, least time.Duration) error {
	over, refresh := time.NewTimer(least), time.NewTimer(max(least, refreshInterval))
	defer over.Stop()
	defer refresh.Stop()
	changed := (<-chan struct{})(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-watch.Ended():
			return errors.Join(errors.New("the watch of the cluster ended"), err)
		case <-over.C:
			changed = watch.Changed()
		case <-changed:
			return nil
		case <-refresh.C:
			return nil
		}
	}
}

// state returns the present state.
func (v *verb) state(ctx context.Context, watch *live.Watch, namespaces []string, recorded *history) (State, error) {
	var snapshots []*clusterstate.Snapshot
	changes := v.changes.Take()
	for _, namespace := range namespaces {
		snapshot, err := watch.Snapshot(ctx, namespace)
		if err != nil {
			return State{}, err
		}
		snapshots = append(snapshots, snapshot)
	}
	now := v.env.Now()
	views, notes := buildViews(snapshots, now)
	state := State{
		Context: v.context, Time: metav1.NewMicroTime(now.UTC()), Phases: rolloutview.Phases(),
		Workloads: views, Timelines: recorded.record(podsByView(snapshots, views), changes, now), Notes: notes,
	}
	if lost := watch.Lost(); lost != nil {
		state.Stale = lost.Error()
	}
	if !v.flags.AllNamespaces {
		state.Namespace = namespaces[0]
	}
	return state, nil
}
