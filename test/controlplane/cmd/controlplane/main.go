//go:build linux

// Command controlplane builds and runs a local Kubernetes control plane: see
// `controlplane --help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/podops-dev/podops/test/controlplane/build"
	"github.com/podops-dev/podops/test/controlplane/cluster"
)

const usage = `controlplane builds and runs a local Kubernetes control plane, with nodes whose
pods exist in the API only. It needs nothing but Go, and no rights.

Usage:
  controlplane build    fetch or build etcd, kube-apiserver, kubectl and so on into a folder
  controlplane up       start a cluster; when it returns, Deployments get running pods
  controlplane status   show the cluster; exit code 1 when it is not healthy
  controlplane down     end the cluster and remove its files

  controlplane COMMAND --help   shows the flags of a command

Folders default to bin/ and bin/cluster/ of the checkout the command is called in.
`

// errUsage means that the command line is invalid and that the error was printed.
var errUsage = errors.New("usage")

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, args)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		return 1
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "build":
		return runBuild(ctx, args)
	case "up":
		return runUp(ctx, args)
	case "status":
		return runStatus(ctx, args)
	case "down":
		return runDown(ctx, args)
	case "supervise": // Started by up; see cluster.Supervise.
		return runSupervise(args)
	case "help", "--help", "-h", "-help":
		fmt.Print(usage)
		return nil
	default:
		fmt.Fprintf(os.Stderr, "unknown command %q\n\n%s", name, usage)
		return errUsage
	}
}

func runBuild(ctx context.Context, args []string) error {
	flags := newFlags("build", "fetches the official programs of the control plane where their sites can be reached, builds them\n"+
		"otherwise, and does nothing when they are up to date; PODOPS_KUBE=fetch or PODOPS_KUBE=build decides by hand")
	bin := flags.String("bin", inCheckout("bin"), "`folder` for the programs")
	oldest := flags.Bool("oldest", false, "provide the servers of the oldest Kubernetes version that PodOps supports, into the subfolder oldest")
	first := flags.String("first", "", "`command`, without quotes in it, that is run beside downloads and is done before packages are compiled")
	source := flags.String("source", "", "`folder` of this module (default: test/controlplane of the checkout)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *source == "" {
		found, err := build.Source(".")
		if err != nil {
			return err
		}
		*source = found
	}
	target := build.Newest()
	if *oldest {
		target = build.Oldest()
	}
	origin, err := build.OriginOf(os.Getenv)
	if err != nil {
		return err
	}
	return target.Run(ctx, *source, *bin, origin, strings.Fields(*first), os.Stdout)
}

func runUp(ctx context.Context, args []string) error {
	flags := newFlags("up", "starts a cluster, or does nothing when it is up; an unhealthy cluster is replaced")
	var o cluster.Options
	flags.StringVar(&o.Bin, "bin", inCheckout("bin"), "`folder` with the programs")
	flags.StringVar(&o.Dir, "dir", inCheckout("bin", "cluster"), "state `folder`")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", inCheckout("bin", "kubeconfig"), "`file` to write the administrator's kubeconfig to")
	flags.IntVar(&o.Nodes, "nodes", 4, "number of nodes, for 110 pods each")
	flags.BoolVar(&o.OneIdentity, "one-identity", false, "make all controllers act as system:kube-controller-manager, which then has all rights")
	flags.IntVar(&o.ParentPID, "parent-pid", 0, "end the cluster when the process with this `id` has ended")
	cidr := flags.String("cidr", "127.64.0.0/16", "loopback `range` of pod addresses, a /16: node i takes the i-th /24")
	if err := parse(flags, args); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(*cidr)
	if err != nil {
		return fmt.Errorf("reading --cidr: %w", err)
	}
	o.PodCIDR = prefix
	return cluster.Up(ctx, o, os.Stdout)
}

func runStatus(ctx context.Context, args []string) error {
	flags := newFlags("status", "shows the cluster; exit code 1 when it is not healthy")
	dir := flags.String("dir", inCheckout("bin", "cluster"), "state `folder`")
	if err := parse(flags, args); err != nil {
		return err
	}
	return cluster.Status(ctx, *dir, time.Now(), os.Stdout)
}

func runDown(ctx context.Context, args []string) error {
	flags := newFlags("down", "ends the cluster and removes its files, its kubeconfig included; a missing cluster is no error")
	dir := flags.String("dir", inCheckout("bin", "cluster"), "state `folder`")
	keep := flags.Bool("keep", false, "keep the files with logs and the audit log; up still starts from nothing")
	if err := parse(flags, args); err != nil {
		return err
	}
	return cluster.Down(ctx, *dir, *keep, os.Stdout)
}

func runSupervise(args []string) error {
	flags := newFlags("supervise", "owns the processes of a cluster; up starts it")
	dir := flags.String("dir", "", "state `folder`")
	if err := parse(flags, args); err != nil {
		return err
	}
	return cluster.Supervise(*dir)
}

func newFlags(name, does string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "controlplane %s %s.\n\nFlags:\n", name, does)
		flags.PrintDefaults()
	}
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage // the flag set has printed the error
	case flags.NArg() > 0:
		fmt.Fprintf(flags.Output(), "unexpected argument %q\n", flags.Arg(0))
		flags.Usage()
		return errUsage
	}
	return nil
}

// inCheckout returns a path in the checkout this command is called in, or below the current
// folder outside of a checkout.
func inCheckout(elements ...string) string {
	source, err := build.Source(".")
	if err != nil {
		return filepath.Join(elements...)
	}
	root := filepath.Dir(filepath.Dir(source))
	return filepath.Join(append([]string{root}, elements...)...)
}
