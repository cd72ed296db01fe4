package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/operator/webhookserver"
)

// Names of the hook's objects in examples/kvstore/config/operator.
const (
	hookService = "kvstore-operator"
	hookSecret  = "kvstore-operator-hook-certs"
)

// hookOptions are the flags of PodOps' hook.
type hookOptions struct {
	address string
	url     string
}

func (o *hookOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "hook-bind-address", "0", "`address` of the hook that moves leadership for PodOps, 0: none")
	flags.StringVar(&o.url, "hook-url", "", "`URL` of the server of the hook where PodOps reaches an operator outside the cluster; empty: the Service "+hookService)
}

func (o *hookOptions) enabled() bool { return o.address != "0" }

// hookURL returns the URL by which rules call the hook.
func (o *hookOptions) hookURL(namespace string) (string, error) {
	address, err := certificates.ParseAddress(namespace, hookService, o.url)
	if err != nil {
		return "", fmt.Errorf("--hook-url: %w", err)
	}
	base := "https://" + address.Names()[0]
	if address.URL != nil {
		base = strings.TrimSuffix(address.URL.String(), "/")
	}
	return base + operator.HookPath, nil
}

// limits are those of a server with one client, which has at most 16 calls open.
func limits() webhookserver.Limits {
	return webhookserver.Limits{
		Connections: 64, ConnectionsPerSource: 32,
		ReviewBytes: 1 << 20, PendingBytes: 16 << 20, PendingBytesPerSource: 8 << 20,
		Running: 16, WaitingPerSource: 64,
		ConnectionsPerSecond: 25, ReviewsPerSecond: 50, BytesPerSecond: 8 << 20,
		ReadTimeout: 5 * time.Second, ReviewTimeout: 9 * time.Second, IdleTimeout: 90 * time.Second,
	}
}

// register serves the hook on every replica, by a certificate that the replicas share.
func (o *hookOptions) register(mgr manager.Manager, namespace string, leadership operator.Leadership) error {
	url, err := o.hookURL(namespace)
	if err != nil {
		return err
	}
	served := certificates.NewServing(clock.RealClock{})
	certs, err := certificates.New(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}, certificates.Options{
		Namespace: namespace, Secret: hookSecret, Service: hookService, WebhookURL: o.url, Serving: served,
		Publisher: rulePublisher{mgr.GetClient(), url},
	})
	if err != nil {
		return fmt.Errorf("making the certificates of the hook: %w", err)
	}
	if err := certs.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the certificates of the hook: %w", err)
	}
	measured, err := webhookserver.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering the metrics of the hook: %w", err)
	}
	server, err := webhookserver.New(webhookserver.Options{
		Address: o.address, ConfigureTLS: served.ConfigureTLS, Limits: limits(), Metrics: measured,
	})
	if err != nil {
		return err
	}
	server.Register(operator.HookPath, operator.NewHook(mgr.GetClient(), leadership, operator.NewAuthorize(mgr.GetAPIReader())))
	if err := errors.Join(mgr.Add(server), mgr.AddReadyzCheck("hook", certs.Serving)); err != nil {
		return fmt.Errorf("adding the hook: %w", err)
	}
	return nil
}
