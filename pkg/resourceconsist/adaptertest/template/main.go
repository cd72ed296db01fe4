// Command adapter-template is an adapter of ResourceConsist to copy: a program of its own beside the
// manager of PodOps. docs/resourceconsist.md leads from the copy to an adapter for your provider.
//
//	adapter.go         the calls of the provider: replace FakeProvider by your client
//	services.go        which Services the adapter has
//	main.go            the program
//	adapter_test.go    the conformance suite
//	rights.yaml        the ServiceAccount and its rights
//	registration.yaml  the TrafficAdapter: new pods wait for this adapter, also while it does not run
//	go.mod.txt         go.mod of the copy
package main

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
)

// leaseName is the Lease of the leader election. The TrafficAdapter names it, so that the manager of
// PodOps reports whether this program runs.
const leaseName = "adapter-template"

type options struct{ metricsAddress, probeAddress, namespace string }

func main() {
	var o options
	var log zap.Options
	flag.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of the metrics; 0: no metrics")
	flag.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0: no probes")
	flag.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease")
	log.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&log)))
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "adapter-template: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.probeAddress,
		// Two active instances would change one load balancer.
		LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: o.namespace, LeaderElectionReleaseOnCancel: true,
		// Other pods have no lifecycle.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.SelectorFromSet(labels.Set{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue})},
		}},
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := add(mgr); err != nil {
		return err
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// add registers the adapter and the probes.
func add(mgr manager.Manager) error {
	provider := adaptertest.NewFakeProvider(clock.RealClock{}) // your client
	adapter := &Template{Client: mgr.GetClient(), Provider: provider}
	if err := resourceconsist.AddToMgr(mgr, adapter); err != nil {
		return fmt.Errorf("adding the adapter: %w", err)
	}
	for _, check := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := check("ping", healthz.Ping); err != nil {
			return fmt.Errorf("adding a probe: %w", err)
		}
	}
	return nil
}
