// Command oldest is kube-apiserver, kube-controller-manager and kube-scheduler of the oldest Kubernetes version
// that PodOps supports, in one file. The base name of argv[0] selects the program, as in cmd/kube.
//
// It is a module of its own, because a module has one version of Kubernetes. etcd and the simulated kubelets
// have no version of Kubernetes: those of cmd/kube serve here, too.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Exit(run())
}

func run() int {
	// Only the selected program registers flags, metrics and feature gates.
	var command *cobra.Command
	switch filepath.Base(os.Args[0]) {
	case "kube-apiserver":
		command = apiserverapp.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanagerapp.NewControllerManagerCommand()
	case "kube-scheduler":
		command = schedulerapp.NewSchedulerCommand()
	default:
		fmt.Fprintln(os.Stderr, "call it as kube-apiserver, kube-controller-manager or kube-scheduler")
		return 2
	}
	return cli.Run(command)
}
