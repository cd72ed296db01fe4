package main

import (
	"fmt"
	"os"

	"github.com/podops-dev/podops/test/controlplane/kubelet"
	"github.com/podops-dev/podops/test/controlplane/stages"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// The functions below are the main functions of the programs they are named
// after, as their own repositories have them: cmd/kube-apiserver/apiserver.go
// and so on in k8s.io/kubernetes, main.go in go.etcd.io/etcd/server/v3,
// cmd/kwok/main.go in sigs.k8s.io/kwok.

func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func apiServer() int {
	return cli.Run(apiserverapp.NewAPIServerCommand())
}

func controllerManager() int {
	return cli.Run(controllermanagerapp.NewControllerManagerCommand())
}

func scheduler() int {
	return cli.Run(schedulerapp.NewSchedulerCommand())
}

func kubectl() int {
	// The verbosity must be set before the command tree is built, which loads plugins and
	// preferences.
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err) // prints it and exits with its code
	}
	return 0
}

func kwok() int {
	// The Kubernetes libraries in this binary add their own --version, of another type than
	// kwok's, to the flags of every program.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx := signals.SetupSignalContext()
	ctx, logger := log.InitFlags(ctx, flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		_, _ = os.Stderr.WriteString(flags.FlagUsages())
		logger.Error("Init config flags", "err", err)
		return 1
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Execute exit", "err", err)
		return 1
	}
	return 0
}

// kubelets is the only program here without a repository of its own: see package kubelet.
func kubelets() int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubelets FILE (a JSON list of nodes)")
		return 2
	}
	nodes, err := kubelet.ReadNodes(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := kubelet.Run(signals.SetupSignalContext(), nodes, stages.Files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
