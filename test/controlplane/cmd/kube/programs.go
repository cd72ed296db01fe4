package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The functions below are the main functions of the programs they are named
// after, as their own repositories have them: cmd/kube-apiserver/apiserver.go
// and so on in k8s.io/kubernetes, main.go in go.etcd.io/etcd/server/v3.

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
