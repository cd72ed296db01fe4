// Command kubelets runs the simulated kubelets of a local cluster: see package kubelet. It is the only
// program of the control plane that Kubernetes does not publish.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/podops-dev/podops/test/controlplane/kubelet"
	"github.com/podops-dev/podops/test/controlplane/stages"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: kubelets FILE (a JSON list of nodes)")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nodes, err := kubelet.ReadNodes(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := kubelet.Run(ctx, nodes, stages.Files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
