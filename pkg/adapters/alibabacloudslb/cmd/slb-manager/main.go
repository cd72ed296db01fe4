// Command slb-manager runs the adapter for load balancers of Alibaba Cloud beside the
// manager of PodOps. It is a separate program, so that the manager has neither Alibaba's
// SDK nor the access key.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
)

// leaseName is the same for all instances: two active instances would change one load balancer.
const leaseName = "podops-alibabacloudslb"

type options struct {
	featureGates, metricsAddress, probeAddress, namespace string
	leaderElect                                           bool
	log                                                   zap.Options
}

func main() {
	os.Exit(run())
}

func run() int {
	o := parse()
	if flag.NArg() == 1 && flag.Arg(0) == "version" {
		fmt.Println(buildinfo.Read().Line("slb-manager"))
		return 0
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.log)))
	enabled, err := slb.FeatureEnabled(o.featureGates)
	if err != nil {
		return failed("reading --feature-gates", err)
	}
	if !enabled {
		return failed("reading --feature-gates", errors.New("the adapter is off by default: add --feature-gates="+slb.FeatureGate+"=true"))
	}
	config, err := slb.ConfigFromEnv(os.Getenv)
	if err != nil {
		return failed("reading the environment", err)
	}
	mgr, err := newManager(o)
	if err != nil {
		return failed("setting up the manager", err)
	}
	if err := slb.AddToMgr(mgr, config); err != nil {
		return failed("setting up the adapter", err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return failed("running the manager", err)
	}
	return 0
}

func parse() options {
	var o options
	flag.StringVar(&o.featureGates, "feature-gates", "", slb.FeatureGate+"=true turns the adapter on; without it the program exits at once")
	flag.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of the metrics; 0: no metrics")
	flag.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flag.StringVar(&o.namespace, "leader-election-namespace", "", "namespace of the lease; empty: the namespace of the pod")
	flag.BoolVar(&o.leaderElect, "leader-elect", true, "run only one of several replicas at a time")
	o.log.BindFlags(flag.CommandLine)
	flag.Parse()
	return o
}

func newManager(o options) (manager.Manager, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                 metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:  o.probeAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.namespace,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("adding a probe: %w", err)
		}
	}
	return mgr, nil
}

func failed(doing string, err error) int {
	fmt.Fprintf(os.Stderr, "slb-manager: %s: %v\n", doing, err)
	return 1
}
