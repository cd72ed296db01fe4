// Command manager is the PodOps operator: its webhooks and its controllers.
package main

import (
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/operator"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
	"github.com/podops-dev/podops/pkg/runtime/lazylog"
)

func main() {
	// Modules of users are compiled by child processes of the manager, which run the same binary.
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Main(os.Stdin, os.Stdout))
	}
	os.Exit(run())
}

func run() int {
	var options operator.Options
	options.AddFlags(flag.CommandLine)
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() == 1 && flag.Arg(0) == "version" {
		fmt.Println(buildinfo.Read().Line("manager"))
		return 0
	}
	ctrl.SetLogger(lazylog.New(zap.New(zap.UseFlagOptions(&options.Log)), "Registering webhook", "Starting EventSource", "Starting Controller",
		"Starting workers", "Shutdown signal received, waiting for all workers to finish", "All workers finished"))

	if flag.NArg() > 0 {
		flag.Usage()
		return failed("reading the arguments", fmt.Errorf("%q: there are flags, and the command version", flag.Args()))
	}
	if err := options.Validate(); err != nil {
		return failed("checking flags", err)
	}
	operator.LimitMemory(ctrl.Log.WithName("memory"))
	defer operator.PaceCollector()()
	config, err := ctrl.GetConfig()
	if err != nil {
		return failed("reading the kubeconfig", err)
	}
	if err := operator.Run(ctrl.SetupSignalHandler(), config, options); err != nil {
		return failed("running", err)
	}
	return 0
}

func failed(doing string, err error) int {
	fmt.Fprintf(os.Stderr, "manager: %s: %v\n", doing, err)
	return 1
}

func usage() {
	fmt.Fprint(flag.CommandLine.Output(), `manager delays operations on a pod until its rules allow them and its traffic is off.

  manager [flags]
  manager version

It finds the API server by --kubeconfig, $KUBECONFIG, or as a pod of the cluster.

Flags:
`)
	flag.PrintDefaults()
}
