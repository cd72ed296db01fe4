package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/operator/webhookserver"
	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
	policywebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
	rulewebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// ServingOptions are the flags of the webhook and metrics servers.
type ServingOptions struct {
	// WebhookClientCA is a file with the CAs of API servers. Empty: clients of the webhook
	// port are not verified, and responses reveal nothing to them.
	WebhookClientCA string

	// WebhookClientNames are common names of API servers, separated by commas. Empty: every
	// certificate of the CA.
	WebhookClientNames string

	// MetricsSecure serves metrics by HTTPS, to clients that may read them.
	MetricsSecure bool

	// ShutdownDelay is the time for which the manager continues to work after a signal to end.
	ShutdownDelay time.Duration
}

func (o *ServingOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.WebhookClientCA, "webhook-client-ca", "", "file with the CAs that sign client certificates of API servers; the webhook port then serves no other client; empty: clients are not verified")
	flags.StringVar(&o.WebhookClientNames, "webhook-client-names", "", "common names that client certificates of API servers may have, separated by commas; empty: every name, which fits a CA of their own")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", true, "serve metrics by HTTPS, to clients that may get /metrics; false is for a loopback address only")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 10*time.Second, "how long the manager serves webhooks after it was signalled to end and is not ready any more, so that no API server calls a manager that has ended")
}

// validateServing returns an error that names an invalid flag.
func (o *Options) validateServing() error {
	var errs []error
	if o.Serving.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay is %s, want 0 or more", o.Serving.ShutdownDelay))
	}
	if o.Serving.WebhookClientCA == "" && o.Serving.WebhookClientNames != "" {
		errs = append(errs, errors.New("--webhook-client-names needs --webhook-client-ca: without a CA no name is verified"))
	}
	if !o.Serving.MetricsSecure && o.MetricsAddress != "0" && !isLoopback(o.MetricsAddress) {
		errs = append(errs, fmt.Errorf("--metrics-secure=false needs a loopback address, e.g. 127.0.0.1:8080, and --metrics-bind-address is %q", o.MetricsAddress))
	}
	if o.PprofAddress != "" && !isLoopback(o.PprofAddress) {
		errs = append(errs, fmt.Errorf("--pprof-bind-address is %q, want a loopback address, e.g. 127.0.0.1:6060, because every client is served", o.PprofAddress))
	}
	return errors.Join(errs...)
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parts returns the parts of the manager in a process.
func (o *Options) parts(ending drain) (Parts, error) {
	measured, err := NewMetrics(metrics.Registry, ctrl.Log.WithName("clock"))
	if err != nil {
		return Parts{}, err
	}
	served := certificates.NewServing(clock.RealClock{})
	webhooks, err := o.newWebhookServer(served.ConfigureTLS, measured.server, ending)
	if err != nil {
		return Parts{}, err
	}
	return Parts{
		Manager: ctrl.Options{
			Metrics: o.metricsOptions(served.ConfigureTLS), WebhookServer: webhooks,
			HealthProbeBindAddress: o.ProbeAddress, PprofBindAddress: o.PprofAddress,
		},
		Metrics: measured, Certificates: served, ending: ending,
	}, nil
}

// newWebhookServer returns the server of the webhooks.
func (o *Options) newWebhookServer(configureTLS func(*tls.Config), measured *webhookserver.Metrics, ending drain) (*webhookserver.Server, error) {
	host, port, err := o.webhookAddress()
	if err != nil {
		return nil, err
	}
	var auth *webhookserver.ClientAuth
	if o.Serving.WebhookClientCA != "" {
		if auth, err = webhookserver.NewClientAuth(o.Serving.WebhookClientCA, list(o.Serving.WebhookClientNames)); err != nil {
			return nil, fmt.Errorf("--webhook-client-ca: %w", err)
		}
	}
	return webhookserver.New(webhookserver.Options{
		Address: net.JoinHostPort(host, strconv.Itoa(port)), ConfigureTLS: configureTLS, ClientAuth: auth, Draining: ending.begun, Metrics: measured,
		// These compile modules.
		Slow: []string{rulewebhook.ValidatePath, policywebhook.ValidatePath},
		// These wait for pods.
		Waiting: []string{podwebhook.DeletePath, podwebhook.EvictionPath},
	})
}

// webhooksAt returns where API servers find the webhooks.
func (o *Options) webhooksAt() string {
	if o.WebhookURL != "" {
		return o.WebhookURL
	}
	return "the Service podops-webhook in namespace " + o.Namespace
}

// metricsOptions returns options that require a right to read metrics, which name namespaces and rules.
func (o *Options) metricsOptions(configureTLS func(*tls.Config)) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress}
	if o.Serving.MetricsSecure {
		options.SecureServing = true
		options.FilterProvider = newMetricsAccess
		options.TLSOpts = []func(*tls.Config){configureTLS}
	}
	return options
}

// list returns the items of a flag that are separated by commas.
func list(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// readByAdmission returns the kinds that webhooks read from the cache.
func readByAdmission() []client.Object {
	return []client.Object{
		&corev1.Namespace{}, &corev1.Pod{}, &corev1.Service{}, &appsv1.ReplicaSet{},
		&appsv1alpha1.PodTransitionRule{}, &appsv1alpha1.PodTransitionPolicy{}, &appsv1alpha1.TrafficAdapter{},
	}
}

// cachesSynced returns a readiness check that fails until every cache that webhooks read
// from is filled. A replica that does not lead would otherwise fill it during the first
// review that needs it, and the API server would time out.
func cachesSynced(ctx context.Context, mgr manager.Manager) (func(*http.Request) error, error) {
	for _, object := range readByAdmission() {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watching %T: %w", object, err)
		}
	}
	synced := &atomic.Bool{}
	if err := mgr.Add(afterCaches(func() { synced.Store(true) })); err != nil {
		return nil, fmt.Errorf("waiting for the caches: %w", err)
	}
	return func(*http.Request) error {
		if !synced.Load() {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}, nil
}

// afterCaches is called on every replica once the caches are filled.
type afterCaches func()

// Start implements manager.Runnable.
func (f afterCaches) Start(context.Context) error {
	f()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (afterCaches) NeedLeaderElection() bool { return false }
