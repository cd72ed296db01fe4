// Command scale measures the cost of a manager with many pods: its resident memory, and for
// lifecycles of in-place updates its processor time, its rate and its API requests. It runs an
// API server alone, with the manifests and a manager as their ServiceAccount, creates pods, and
// acts as their kubelets and as the operation controller. It takes some minutes.
//
//	make bench-scale               # measure and print
//	make bench-scale ARGS=-check   # fail when a goal is missed
//	make bench-scale ARGS=-profile # write profiles to the folder of -dir
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

type options struct {
	bin, dir, manager string
	sizes             []int
	lifecycles        int
	check, profile    bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complaints io.Writer) int {
	o, err := parse(args, complaints)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(complaints, "scale: %v\n", err)
		return 2
	}
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measured, err := perform(ctx, o, complaints)
	printFigures(out, measured)
	if err != nil {
		fmt.Fprintf(complaints, "scale: %v\n", err)
		return 1
	}
	if missed := printGoals(out, goals(measured)); missed > 0 && o.check {
		fmt.Fprintf(complaints, "scale: %d goals are missed\n", missed)
		return 1
	}
	return 0
}

func parse(args []string, complaints io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.StringVar(&o.bin, "bin", "bin", "folder with etcd, kube-apiserver and kubectl; make kube builds them")
	flags.StringVar(&o.dir, "dir", "bin/scale-run", "folder of the logs and the kubeconfigs")
	flags.StringVar(&o.manager, "manager", "bin/manager", "program to measure")
	flags.IntVar(&o.lifecycles, "lifecycles", 400, "lifecycles that are measured at each number of pods")
	flags.BoolVar(&o.check, "check", false, "exit with 1 when a goal is missed")
	flags.BoolVar(&o.profile, "profile", false, "write profiles of processor time and allocations to the folder of -dir, which takes processor time itself")
	sizes := flags.String("pods", "1000,4000,10000", "numbers of pods to measure at, ascending, separated by commas")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || size < o.lifecycles {
			return o, fmt.Errorf("-pods: %q is not a number from %d, the number of lifecycles", text, o.lifecycles)
		}
		o.sizes = append(o.sizes, size)
	}
	if !slices.IsSorted(o.sizes) {
		return o, errors.New("-pods: the numbers are not in order")
	}
	return o, nil
}

// perform measures at each size. Figures that were measured before an error are returned with it.
func perform(ctx context.Context, o options, progress io.Writer) (measured []figures, err error) {
	fmt.Fprintln(progress, "starting an API server and a manager")
	s, err := newServer(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	m, err := s.startManager(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { m.End() }()
	// The watches end before the API server does.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f, err := newFleet(ctx, s.config)
	if err != nil {
		return nil, err
	}
	for _, size := range o.sizes {
		fmt.Fprintf(progress, "growing to %d pods\n", size)
		if err := f.grow(ctx, size); err != nil {
			return measured, err
		}
		at := figures{pods: size}
		if at.grown, err = m.atRest(ctx); err != nil {
			return measured, err
		}
		// A new manager has neither events to send nor garbage of the growth.
		m.End()
		next, err := s.startManager(ctx)
		if err != nil {
			return measured, err
		}
		m = next
		if at.started, err = m.atRest(ctx); err != nil {
			return measured, err
		}
		fmt.Fprintf(progress, "%d lifecycles\n", o.lifecycles)
		if err := lifecycles(ctx, s, m, f, o.lifecycles, &at); err != nil {
			return measured, err
		}
		measured = append(measured, at)
	}
	return measured, nil
}
