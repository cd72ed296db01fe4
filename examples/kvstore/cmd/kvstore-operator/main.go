// Command kvstore-operator is the operator of KVStoreClusters: an example of an operation controller on
// PodOpsLifecycle.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
)

// name of the operator, in leases and events.
const name = "kvstore-operator"

// defaultProgressDeadline is the default of a Deployment.
const defaultProgressDeadline = 10 * time.Minute

// workers is how many clusters are reconciled at a time.
const workers = 4

type options struct {
	plan           plan.Settings
	metrics, probe string
	releaseURL     string
	elect          bool
	namespace      string
	hook           hookOptions
	log            zap.Options
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() == 1 && flag.Arg(0) == "version" {
		fmt.Println(buildinfo.Read().Line(name))
		return 0
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.log)))
	if err := o.start(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.plan.Image, "image", "my-repo/kvstore", "repository of the image of the store; the version of a cluster is its tag")
	flags.StringVar(&o.plan.BackupTarget, "backup-to", "", "where backups are written: a `URL` that stores the body of a PUT below it, or a folder")
	flags.DurationVar(&o.plan.ProgressDeadline, "progress-deadline", defaultProgressDeadline, "how long an upgraded pod may take to become ready before the upgrade is rolled back")
	flags.StringVar(&o.releaseURL, "release-url", "", "`URL` below which a service gets DELETE <namespace>/<name>/<uid> at the end of a deletion, to release external resources; empty: none")
	flags.StringVar(&o.metrics, "metrics-bind-address", "0", "`address` of the metrics, 0: no metrics")
	flags.StringVar(&o.probe, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz")
	flags.BoolVar(&o.elect, "leader-elect", false, "run the controller in one replica at a time")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the operator, with its lease, and the Secret and the Service of the hook ($POD_NAMESPACE)")
	o.hook.addFlags(flags)
	o.log.BindFlags(flags)
}

// validate returns an error that names the flag.
func (o *options) validate() error {
	switch {
	case o.plan.Image == "":
		return errors.New("--image is required")
	case o.plan.BackupTarget == "":
		return errors.New("--backup-to is required: no cluster is deleted without a backup")
	case o.plan.ProgressDeadline <= 0:
		return errors.New("--progress-deadline must be above 0")
	case o.hook.enabled() && o.namespace == "":
		return errors.New("--hook-bind-address requires --namespace")
	default:
		return nil
	}
}

// start runs the operator until it receives a signal.
func (o *options) start() error {
	if err := o.validate(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kvstorev1.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         o.cacheOptions(),
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:        o.probe,
		LeaderElection:                o.elect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := o.register(mgr); err != nil {
		return err
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

func (o *options) register(mgr manager.Manager) error {
	store := operator.NewHTTPStore(clock.RealClock{})
	if err := mgr.Add(store); err != nil {
		return fmt.Errorf("adding the calls of stores: %w", err)
	}
	reconciler := operator.New(mgr.GetClient(), store, o.plan, mgr.GetEventRecorder(name), clock.RealClock{})
	if o.releaseURL != "" {
		release, err := operator.NewHTTPRelease(o.releaseURL)
		if err != nil {
			return fmt.Errorf("--release-url: %w", err)
		}
		reconciler.Releasing(release)
	}
	if err := reconciler.SetupWithManager(mgr, workers, store.Changed()); err != nil {
		return err
	}
	if err := operator.RegisterMetrics(metrics.Registry, mgr.GetCache()); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced(mgr))); err != nil {
		return fmt.Errorf("adding the probes: %w", err)
	}
	if !o.hook.enabled() {
		return nil
	}
	return o.hook.register(mgr, o.namespace, store)
}

// cacheOptions limits the cache of kinds that other workloads have, too, to objects of clusters. Services
// and StatefulSets are cached as a whole: their names may be taken by others.
func (o *options) cacheOptions() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{kvstorev1.NameLabelKey: kvstorev1.NameLabelValue})}
	rules := ours
	rules.Transform = withoutStatus
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: ours, &corev1.PersistentVolumeClaim{}: ours, &appsv1alpha1.PodTransitionRule{}: rules,
			&corev1.Secret{}: certificates.CacheOfSecret(o.namespace, hookSecret),
		},
	}
}
