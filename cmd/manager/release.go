package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/pkg/operator"
)

// release runs `manager release`. It has the rights of the kubeconfig, which must be an
// administrator's, because the manager may not remove its own admission policies.
func release(args []string, namespace string) error {
	flags := flag.NewFlagSet("manager release", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), `manager release removes PodOps from the pods of a cluster: it removes webhooks and admission
policies, stops the manager, ends every lifecycle, opens every readiness gate, and removes
the finalizers of the adapters inside of the manager. Every pod serves afterwards. It needs
no running manager, and can be run again.

  manager release [--kubeconfig FILE] [--namespace NAMESPACE] [--timeout 5m]
                  [--adapters NAMES] [--all-finalizers]

Flags:
`)
		flags.PrintDefaults()
	}
	flags.StringVar(&namespace, "namespace", namespace, "namespace of the manager")
	timeout := flags.Duration("timeout", 5*time.Minute, "timeout of the whole command")
	adapters := flags.String("adapters", "", "TrafficAdapters, separated by commas, whose finalizers are removed, too; their programs must have stopped")
	all := flags.Bool("all-finalizers", false, "remove every protection finalizer, including those of adapters in other programs")
	if kubeconfig := flag.Lookup("kubeconfig"); kubeconfig != nil {
		flags.Var(kubeconfig.Value, kubeconfig.Name, kubeconfig.Usage)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the arguments: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	ctx, stop := context.WithTimeout(ctrl.SetupSignalHandler(), *timeout)
	defer stop()
	return operator.Release(ctx, config, namespace, names(*adapters), *all, os.Stdout)
}

// names returns the names in a list that is separated by commas.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
