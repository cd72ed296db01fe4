// Command traffic measures how many requests a rollout loses: real servers on the pods'
// addresses, a real HAProxy in front of them, and individually counted requests, while pods
// are rolled, scaled in and updated in place; with PodOps and without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/test/stage"
)

const usage = `traffic sends requests through a HAProxy to pods of a local control plane while their
workload is operated on, and counts the outcome of each. Every scenario runs with PodOps
and without. Run it with "make traffic".

  restart      rolling restart of 20 pods
  scale-in     from 20 pods to 8
  in-place     a new image for 20 pods, by a small operation controller
  flaky        rolling restart, and the load balancer fails 20 % of the calls to it
  killed       as in-place, and the manager is killed and started again twice
  drain        kubectl drain of two of four nodes
  statefulset  rolling restart of a StatefulSet of 8 pods
  daemonset    rolling restart of a DaemonSet on 4 nodes
  podoperation a PodOperation restarts 20 pods of a Deployment in place
  one-delete   a delete of the only pod, in whose place the Deployment starts another pod first
  one-drain    likewise, kubectl drain of its node
  one-restart  likewise, a PodOperation restarts it in place
  one-resize   likewise, a PodOperation resizes it in place
  connections  rolling restart of 20 pods behind a Service alone; clients and streams keep their connections
  port         the Service of 20 pods gets another target port

Without PodOps a controller adds pods to the load balancer when they are ready, and drains
them when they are not, as fast as it can.

It exits with 0 only if no request failed with PodOps in any scenario, no more pods existed at
once with it than replicas and maxSurge allow, some requests failed without it, and flaky took
at most twice as long as restart.

A wait ends when nothing has changed for 3 minutes, or after 20: a slow machine may be slow
as long as it makes progress.

Flags:
`

type options struct {
	bin, dir  string
	cidr      string
	scenarios []scenario
	sides     []side
	requests  int
	rate      float64
	workers   int
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	o, err := parse(args, complaints)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(complaints, "traffic: %v\n", err)
		return 2
	}
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := perform(ctx, o, out)
	if printErr := results.print(out); err == nil {
		err = printErr
	}
	if err == nil {
		err = results.verdict()
	}
	if err != nil {
		fmt.Fprintf(complaints, "traffic: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, complaints io.Writer) (options, error) {
	var o options
	var only, sides string
	flags := flag.NewFlagSet("traffic", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.StringVar(&o.bin, "bin", "bin", "folder of the binaries")
	flags.StringVar(&o.dir, "dir", filepath.Join("bin", "traffic.d"), "folder of the cluster, the logs, and outcomes.tsv with a line for every request")
	flags.StringVar(&o.cidr, "cidr", "127.65.0.0/16", "loopback addresses of the pods; not the addresses of another cluster on this machine")
	flags.StringVar(&only, "only", "", "scenarios to run, separated by commas; empty: all")
	flags.StringVar(&sides, "sides", "with,without", "with, without, or both: whether PodOps takes part")
	flags.IntVar(&o.requests, "requests", 10_000, "requests that every run sends at least; 30 runs send 300,000")
	flags.Float64Var(&o.rate, "rate", 250, "requests a second of each kind, with kept connections and without")
	flags.IntVar(&o.workers, "workers", 32, "maximum number of open requests of each kind")
	flags.Usage = func() {
		fmt.Fprint(complaints, usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("%q is not a flag; --help lists them", flags.Arg(0))
	}
	if o.requests < 1 {
		return options{}, fmt.Errorf("--requests %d: use at least 1", o.requests)
	}
	cidr, err := netip.ParsePrefix(o.cidr)
	if err != nil || !cidr.Addr().IsLoopback() {
		return options{}, fmt.Errorf("--cidr %q: use a network of loopback addresses, such as 127.65.0.0/16", o.cidr)
	}
	if o.scenarios, err = choose(only); err != nil {
		return options{}, err
	}
	if o.sides, err = chooseSides(sides); err != nil {
		return options{}, err
	}
	return o, nil
}

func choose(names string) ([]scenario, error) {
	all := scenarios()
	if names == "" {
		return all, nil
	}
	var chosen []scenario
	for name := range strings.SplitSeq(names, ",") {
		before := len(chosen)
		for _, s := range all {
			if s.name == name {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("--only: there is no scenario %q; --help lists them", name)
		}
	}
	return chosen, nil
}

func chooseSides(names string) ([]side, error) {
	var chosen []side
	for name := range strings.SplitSeq(names, ",") {
		if side(name) != withPodOps && side(name) != withoutPodOps {
			return nil, fmt.Errorf("--sides: use with, without, or both separated by a comma, not %q", name)
		}
		chosen = append(chosen, side(name))
	}
	return chosen, nil
}

// perform starts the cluster, runs every scenario, and cleans up in any case.
func perform(ctx context.Context, o options, out io.Writer) (results results, err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	s := stage.New(stage.Options{
		Bin: o.bin, Dir: dir, Out: out, CIDR: o.cidr, Manifests: "test/traffic/manifests",
		ManagerFlags: []string{"--enable-adapters=haproxy", "--haproxy-allow=unix:" + dir + "/", "--rule-webhook-allow-cidr=" + o.cidr},
	})
	defer func() { err = errors.Join(err, s.Down()) }()
	if err := s.Up(ctx); err != nil {
		return nil, err
	}
	w, err := newHarness(ctx, s, o, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, scenario := range o.scenarios {
		for _, side := range o.sides {
			fmt.Fprintf(out, "%s, %s PodOps: %s\n", scenario.name, side, scenario.title)
			played, err := w.play(ctx, scenario, side)
			if err != nil {
				return results, fmt.Errorf("%s, %s PodOps: %w", scenario.name, side, err)
			}
			results = append(results, played)
			if err := played.report.Print(out); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}
