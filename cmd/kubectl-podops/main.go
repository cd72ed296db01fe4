// Command kubectl-podops is a kubectl plugin: it shows the phases of pods in their lifecycles,
// explains why they wait, evaluates rules offline, and removes leftovers of controllers that no
// longer exist.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/root"
)

func main() {
	// Modules are compiled by child processes, which run the same binary.
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Main(os.Stdin, os.Stdout))
	}
	os.Exit(run())
}

func run() int {
	// The verbs report errors themselves; the logs of the libraries are for programs that run for
	// days.
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends a verb that waits for something without a context.
	context.AfterFunc(ctx, stop)
	return root.Run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
