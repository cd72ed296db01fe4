// Command cmd runs the controller imageupdater against the cluster of KUBECONFIG.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/podops-dev/podops/examples/imageupdater"
)

func main() {
	ctrl.SetLogger(zap.New())
	// Another manager on this machine may have the default port of the metrics.
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = (&imageupdater.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
	}
	if err == nil {
		err = mgr.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		ctrl.Log.Error(err, "The controller has ended")
		os.Exit(1)
	}
}
