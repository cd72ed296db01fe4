// Command manager is the PodOps operator: its webhooks and its controllers.
package main

import (
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/podops-dev/podops/pkg/operator"
	"github.com/podops-dev/podops/pkg/policy/sandbox"
)

func main() {
	// Modules of users are compiled by children of the manager, which are the same binary.
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Child(os.Stdin, os.Stdout))
	}
	os.Exit(run())
}

func run() int {
	var options operator.Options
	options.AddFlags(flag.CommandLine)
	flag.Usage = usage
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options.Log)))

	if flag.NArg() > 0 {
		return command(flag.Args())
	}
	if err := options.Validate(); err != nil {
		return failed("checking flags", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return failed("reading the kubeconfig", err)
	}
	ctx := ctrl.SetupSignalHandler()
	mgr, err := operator.New(ctx, config, options)
	if err != nil {
		return failed("setting up the manager", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return failed("running the manager", err)
	}
	return 0
}

// command runs what is not the operator itself.
func command(args []string) int {
	if len(args) != 2 || args[0] != "replay" {
		flag.Usage()
		return failed("reading the arguments", fmt.Errorf("%q is not a command; there is: replay FILE", args))
	}
	if err := operator.Replay(ctrl.SetupSignalHandler(), args[1], os.Stdout); err != nil {
		return failed("replaying", err)
	}
	return 0
}

func failed(doing string, err error) int {
	fmt.Fprintf(os.Stderr, "manager: %s: %v\n", doing, err)
	return 1
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `manager lets nothing operate on a pod until its rules allow it and its traffic is off.

  manager [flags]         run the operator
  manager replay FILE     make the decisions of a decision log again, and compare

It finds the API server by --kubeconfig, $KUBECONFIG, or as a pod of the cluster.

Flags:
`)
	flag.PrintDefaults()
}
