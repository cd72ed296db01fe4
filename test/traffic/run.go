package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/traffic/front"
	"github.com/podops-dev/podops/test/traffic/load"
)

const (
	// around is the number of requests that are sent before the operation, and after it.
	around = 500

	// seed is the seed of failures, so that runs differ in their timing alone.
	seed = 1
)

// work returns the paths of requests: most are answered at once, some take a while, and
// every tenth takes long enough to be cut by a pod that does not drain.
func (s scenario) work() []string {
	paths := make([]string, 10)
	for i := range paths {
		paths[i] = "/?work=5ms"
	}
	paths[3], paths[6], paths[9] = "/", "/?work=50ms", "/?work=250ms"
	if s.drains {
		paths[9] = "/?work=4s" // a stream
	}
	return paths
}

// scenarioRun is one run of a scenario: its namespace, its load balancer and its load.
type scenarioRun struct {
	harness   *harness
	scenario  scenario
	side      side
	namespace string
	balancer  *front.HAProxy
	look      *runtimeapi.Client // connected to the load balancer itself
	socket    string             // that the controller uses
	history   *history
	first     []types.UID // of the pods before the operation
	drained   []string    // nodes
	peak      peak
	moved     atomic.Bool // to otherPort

	following *following // without PodOps
}

// play runs a scenario, and removes everything it created.
func (w *harness) play(ctx context.Context, s scenario, on side) (r result, err error) {
	r = result{scenario: s.name, side: on, harmless: s.harmless}
	g := &scenarioRun{harness: w, scenario: s, side: on, namespace: fmt.Sprintf("%s-%s", s.name, on)}
	dir := filepath.Join(w.stage.Dir(), g.namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, fmt.Errorf("making %s: %w", dir, err)
	}
	if g.balancer, err = front.StartHAProxy(ctx, front.Options{Dir: dir, Connections: s.drains}); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.balancer.Close()) }()
	// Without its load balancer a run can only wait.
	ctx, stop := g.balancer.While(ctx)
	defer stop()
	g.socket = g.balancer.Socket()
	g.look = runtimeapi.New(runtimeapi.Endpoint{Network: "unix", Address: g.socket}, 0)
	// Clients of the load balancer use a relay, which records the executed commands.
	g.socket, g.history = filepath.Join(dir, "relay.sock"), newHistory()
	relay, err := front.StartFlaky(g.socket, g.balancer.Socket(), s.failing, seed, g.history.command)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, relay.Close()) }()
	if err := g.kubectl(ctx, "create", "namespace", g.namespace); err != nil {
		return r, err
	}
	defer func() {
		// The load balancer still runs, so that controllers can remove their servers.
		err = errors.Join(err, g.kubectl(context.WithoutCancel(ctx), "delete", "namespace", g.namespace, "--timeout=120s"))
		g.following.end()
	}()
	if err := g.remember(ctx); err != nil {
		return r, err
	}
	if err := g.begin(ctx); err != nil {
		return r, err
	}
	g.history.begin(time.Now())
	if r.report, r.operation, err = g.measure(ctx); err != nil {
		return r, err
	}
	r.most, r.moment = g.peak.most(time.Now())
	if r.allowed = max(s.replicas, s.remaining) + s.surge; on == withPodOps {
		fmt.Fprintf(w.out, "pods: %d at once, of %d that are allowed; %d at some moment\n", r.most, r.allowed, r.moment)
	}
	return r, g.checkOrder()
}

// port returns the port that requests go to.
func (g *scenarioRun) port() uint16 {
	if g.moved.Load() {
		return otherPort
	}
	return podPort
}

// remember records the labels that PodOps sets on the pods of this run.
func (g *scenarioRun) remember(ctx context.Context) error {
	informer, err := g.harness.pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	see := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Namespace == g.namespace {
			g.history.see(pod)
			g.peak.see(pod, time.Now())
		}
	}
	gone := func(object any) {
		if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		see(object)
		if pod, ok := object.(*corev1.Pod); ok && pod.Namespace == g.namespace {
			g.peak.gone(pod, time.Now())
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: gone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

var errOrder = errors.New("a pod was operated on, or counted as available, in the wrong order")

// checkOrder checks with the history of the run that traffic was off before every
// operation, and on before every pod was available.
func (g *scenarioRun) checkOrder() error {
	if g.side == withoutPodOps || g.scenario.drains {
		return nil // a follower reports nothing to PodOps
	}
	found := g.history.order()
	fmt.Fprintf(g.harness.out, "order: traffic was off before operate %d times, and on before service-available %d times; %d times it was not\n",
		found.operate, found.available, len(found.violations))
	switch {
	case len(found.violations) > 0:
		return fmt.Errorf("%w: %s", errOrder, strings.Join(found.violations, "; "))
	case g.scenario.noOperation:
		return nil
	case found.operate == 0 || g.scenario.comes && found.available == 0:
		return fmt.Errorf("%w: no pod was observed, so the order is not proved", errOrder)
	default:
		return nil
	}
}

// begin creates the workload behind the load balancer.
func (g *scenarioRun) begin(ctx context.Context) error {
	manifest, err := values{
		PodOps: g.side == withPodOps, Kind: g.scenario.workload(), Replicas: g.scenario.replicas, Policy: g.scenario.policy,
		Socket: g.socket, Backend: g.balancer.Backend(), Drains: g.scenario.drains,
	}.manifest()
	if err != nil {
		return err
	}
	if err := g.harness.stage.KubectlWith(ctx, manifest, "--namespace", g.namespace, "apply", "-f", "-"); err != nil {
		return err
	}
	g.follow()
	if err := g.settled(ctx, g.scenario.replicas, always); err != nil {
		return err
	}
	pods, err := g.harness.podsOf(ctx, g.namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		g.first = append(g.first, pods[i].UID)
	}
	return nil
}

// measure sends requests from before the operation until all pods have settled, and until
// there were enough. It also returns the duration of the operation.
func (g *scenarioRun) measure(ctx context.Context) (*load.Report, time.Duration, error) {
	l, err := load.Start(load.Options{
		Address: g.balancer.Address(), Paths: g.scenario.work(), Workers: g.harness.options.workers, Rate: g.harness.options.rate, Record: g.harness.log.Record,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("starting the load: %w", err)
	}
	defer l.Stop()
	requests := func(count int) error {
		return g.harness.await(ctx, fmt.Sprintf("%d requests are sent", count), func(context.Context) (bool, string, error) {
			sent := l.Report().Requests
			return sent >= count, fmt.Sprintf("%d are", sent), nil
		})
	}
	if err := requests(around); err != nil {
		return nil, 0, err
	}
	start := time.Now()
	if err := g.scenario.act(ctx, g); err != nil {
		return nil, 0, err
	}
	if err := g.settled(ctx, g.scenario.remaining, g.scenario.done); err != nil {
		return nil, 0, err
	}
	took := time.Since(start)
	if err := requests(max(g.harness.options.requests, l.Report().Requests+around)); err != nil {
		return nil, 0, err
	}
	return l.Stop(), took, errors.Join(g.harness.podServers.Err(), g.harness.others.Err())
}

// settled waits until exactly count pods exist, all of them are ready, the load balancer
// sends requests to each and to no other server, and the scenario is done.
func (g *scenarioRun) settled(ctx context.Context, count int, done func(*scenarioRun, []corev1.Pod) (bool, string)) error {
	return g.harness.await(ctx, fmt.Sprintf("%d pods serve", count), func(ctx context.Context) (bool, string, error) {
		pods, err := g.harness.podsOf(ctx, g.namespace)
		if err != nil {
			return false, "", err
		}
		if ok, seen := done(g, pods); !ok {
			return false, seen, nil
		}
		serving := 0
		for i := range pods {
			if g.serves(&pods[i]) {
				serving++
			}
		}
		servers, err := g.look.Servers(ctx, g.balancer.Backend())
		if err != nil {
			return false, "", fmt.Errorf("looking at the load balancer: %w", err)
		}
		balanced := 0
		for _, server := range servers {
			if server.Serves() && server.Address.Port() == g.port() {
				balanced++
			}
		}
		seen := fmt.Sprintf("%d of %d pods serve, and %d of %d servers", serving, len(pods), balanced, len(servers))
		if err := g.following.err(); err != nil {
			seen += ": " + err.Error()
		}
		return serving == count && len(pods) == count && balanced == count && len(servers) == count, seen, nil
	})
}

// serves reports whether a pod is ready, and available where an adapter of PodOps has the load balancer.
func (g *scenarioRun) serves(pod *corev1.Pod) bool {
	return ready(pod) && (g.side == withoutPodOps || g.scenario.drains || protected(pod))
}

// protected reports whether PodOps counts the pod as available, and the finalizer of the
// load balancer is on it. A pod that was created before its Service was observed gets the
// finalizer a moment after it is ready.
func protected(pod *corev1.Pod) bool {
	_, available := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return available && slices.ContainsFunc(pod.Finalizers, lifecycle.IsProtectionFinalizer)
}

// follow starts the follower where no adapter of PodOps has the load balancer.
func (g *scenarioRun) follow() {
	if g.side == withPodOps && !g.scenario.drains {
		return
	}
	g.following = start(&follower{
		client:  runtimeapi.New(runtimeapi.Endpoint{Network: "unix", Address: g.socket}, 0),
		backend: g.balancer.Backend(), changed: g.harness.changed, port: g.port,
		pods: func(ctx context.Context) ([]corev1.Pod, error) { return g.harness.podsOf(ctx, g.namespace) },
	})
}

// killController kills and restarts the controller of the load balancer.
func (g *scenarioRun) killController(ctx context.Context) error {
	if g.side == withPodOps {
		g.harness.stage.KillManager()
		return g.harness.stage.StartManager(ctx)
	}
	g.following.end()
	g.follow()
	return nil
}

func (g *scenarioRun) kubectl(ctx context.Context, args ...string) error {
	return g.harness.stage.Kubectl(ctx, append([]string{"--namespace", g.namespace}, args...)...)
}
