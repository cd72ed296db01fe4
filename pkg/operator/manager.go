package operator

import (
	"context"
	"crypto/tls"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator/certificates"
)

// New returns a manager with every controller and webhook registered. It asks the API
// server under which name the manager talks to it: requests of that user may set the
// labels that only PodOps sets.
func New(ctx context.Context, config *rest.Config, options Options) (manager.Manager, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	// The API server's priority and fairness limits requests, not a guess made here.
	config = rest.CopyConfig(config)
	config.QPS = -1

	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	review, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the API server who this manager is: %w", err)
	}
	identity := review.Status.UserInfo.Username

	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	serving := &lateTLS{}
	mgr, err := newManager(config, scheme, options, serving)
	if err != nil {
		return nil, err
	}
	certs, err := newCertificates(mgr, options)
	if err != nil {
		return nil, err
	}
	serving.configure = certs.ConfigureTLS
	if err := register(mgr, clientset, identity, options); err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-certificate", certs.Ready); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	mgr.GetLogger().Info("Manager made", "identity", identity, "namespace", options.Namespace, "webhookURL", options.WebhookURL)
	return mgr, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// lateTLS configures the webhook server with certificates that are made after it.
type lateTLS struct {
	configure func(*tls.Config)
}

func newManager(config *rest.Config, scheme *runtime.Scheme, options Options, serving *lateTLS) (manager.Manager, error) {
	host, port, err := options.webhookAddress()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(options.Namespace),
		Metrics:                       metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress:        options.ProbeAddress,
		LeaderElection:                options.LeaderElection,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &options.LeaseDuration,
		RenewDeadline:                 &options.RenewDeadline,
		RetryPeriod:                   &options.RetryPeriod,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: host, Port: port,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) { serving.configure(c) }},
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

// cacheOptions keep in memory only what is used: controlled pods, and of workloads the
// few fields that counts are made from.
func cacheOptions(namespace string) cache.Options {
	byObject := certificates.CacheByObject(namespace)
	byObject[&corev1.Pod{}] = cache.ByObject{
		Label: labels.SelectorFromSet(labels.Set{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}),
	}
	for _, workload := range []client.Object{&appsv1.ReplicaSet{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}} {
		byObject[workload] = cache.ByObject{Transform: slimWorkload}
	}
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: byObject}
}

// slimWorkload drops what nobody reads: most of a workload is the spec of its pods.
func slimWorkload(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
	}
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		o.Spec.Template.Spec, o.Status = corev1.PodSpec{}, appsv1.ReplicaSetStatus{}
	case *appsv1.Deployment:
		o.Spec.Template.Spec, o.Status = corev1.PodSpec{}, appsv1.DeploymentStatus{}
	case *appsv1.StatefulSet:
		o.Spec.Template.Spec, o.Spec.VolumeClaimTemplates, o.Status = corev1.PodSpec{}, nil, appsv1.StatefulSetStatus{}
	}
	return object, nil
}
