package certificates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Names of the objects in the manifests in config/.
const (
	// SecretName is the Secret that the replicas share.
	SecretName = "podops-webhook-certs"

	// ServiceName is the Service in front of the webhook servers.
	ServiceName = "podops-webhook"

	// MutatingConfigurationName and ValidatingConfigurationName are the webhook
	// configurations that contain the CA bundle.
	MutatingConfigurationName   = "podops-mutating"
	ValidatingConfigurationName = "podops-validating"
)

// conflictDelay is the time for a cache to catch up with a write.
const conflictDelay = 200 * time.Millisecond

// Options of a Reconciler.
type Options struct {
	// Namespace holds the Secret and the Service.
	Namespace string

	// Secret and Service are their names. They default to SecretName and ServiceName.
	Secret  string
	Service string

	// WebhookURL is where clients reach this server when it runs outside the
	// cluster ("https://127.0.0.1:9443"). Empty: they reach it through the Service.
	WebhookURL string

	// Serving is filled by the Reconciler. It defaults to NewServing.
	Serving *Serving

	// Publisher defaults to that of PodOps' webhook configurations.
	Publisher Publisher

	// Lifetimes default to DefaultLifetimes when they are zero.
	Lifetimes Lifetimes

	// Elected is closed once this replica leads (manager.Manager.Elected()). Only the
	// leader writes the address of the webhooks, so that two replicas with different URLs
	// do not overwrite each other. Nil: it leads from the start.
	Elected <-chan struct{}

	// Metrics show when certificates end; nil: nothing does.
	Metrics *Metrics
}

// Reconciler keeps the Secret, the published CAs and the served certificate
// consistent. It runs on every replica: the replicas share the Secret, and write it under
// its resourceVersion.
type Reconciler struct {
	client    client.Client
	apiReader client.Reader
	clock     clock.PassiveClock
	lifetimes Lifetimes
	secret    client.ObjectKey
	address   Address
	publisher Publisher
	elected   <-chan struct{}
	metrics   *Metrics

	serving *Serving
	carried carried // used by Reconcile only, which never runs twice at a time
}

// New returns a Reconciler. The client reads the objects to which the CAs are published, possibly
// from a cache, and writes; apiReader reads the Secret from the API server
// (manager.GetAPIReader()), because a replica with an old copy would publish a bundle
// without the newest CA. Invalid options are an error.
func New(c client.Client, apiReader client.Reader, clock clock.PassiveClock, options Options) (*Reconciler, error) {
	address, err := ParseAddress(options.Namespace, cmp.Or(options.Service, ServiceName), options.WebhookURL)
	if err != nil {
		return nil, err
	}
	if options.Lifetimes == (Lifetimes{}) {
		options.Lifetimes = DefaultLifetimes()
	}
	if err := options.Lifetimes.Validate(); err != nil {
		return nil, fmt.Errorf("checking certificate lifetimes: %w", err)
	}
	if options.Serving == nil {
		options.Serving = NewServing(clock)
	}
	if options.Publisher == nil {
		options.Publisher = configurationPublisher{c, address}
	}
	return &Reconciler{
		client:    c,
		apiReader: apiReader,
		clock:     clock,
		lifetimes: options.Lifetimes,
		secret:    client.ObjectKey{Namespace: options.Namespace, Name: cmp.Or(options.Secret, SecretName)},
		address:   address,
		publisher: options.Publisher,
		elected:   options.Elected,
		metrics:   options.Metrics,
		serving:   options.Serving,
	}, nil
}

// Ready implements a readiness check: it fails until a valid certificate is served and its CA
// is published everywhere.
func (r *Reconciler) Ready(request *http.Request) error {
	return r.serving.check(request)
}

// Serving implements a readiness check: it fails until a valid certificate is served. It is for a server
// whose CA is published to objects of users, of which one may be missing or not writable.
func (r *Reconciler) Serving(*http.Request) error { return r.serving.valid() }

// Reconcile updates the Secret, the published CAs and the served certificate, and returns
// when the next change is due.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	state, err := r.ensureSecret(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.serving.show(state)
	r.metrics.show(state)

	missing, err := r.publisher.Publish(ctx, Publication{Bundle: state.Bundle(), Token: state.Current.token(), Leads: r.leads()})
	unpublished := err
	if err == nil && len(missing) > 0 {
		unpublished = fmt.Errorf("missing: %s", strings.Join(missing, ", "))
	}
	r.serving.publishedWith(unpublished)
	r.carried = r.carried.observed(state.Next, unpublished == nil, r.clock.Now())
	if apierrors.IsConflict(err) {
		// The cache does not have the latest write yet; its event may have arrived already.
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("publishing the CA bundle: %w", err)
	}
	// The creation of a missing configuration starts the next reconcile.
	wake := r.lifetimes.Wake(state, r.carried.sinceFor(state.Next))
	return reconcile.Result{RequeueAfter: max(time.Second, wake.Sub(r.clock.Now()))}, nil
}

// ensureSecret brings the Secret up to date and returns its state. After a conflict with
// another replica it reads and decides again.
func (r *Reconciler) ensureSecret(ctx context.Context) (State, error) {
	var state State
	lost := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	err := retry.OnError(retry.DefaultBackoff, lost, func() error {
		var err error
		state, err = r.tryEnsureSecret(ctx)
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("keeping secret %s/%s: %w", r.secret.Namespace, r.secret.Name, err)
	}
	return state, nil
}

func (r *Reconciler) tryEnsureSecret(ctx context.Context) (State, error) {
	secret := &corev1.Secret{}
	err := r.apiReader.Get(ctx, r.secret, secret)
	if client.IgnoreNotFound(err) != nil {
		return State{}, err
	}
	missing := err != nil

	now, names := r.clock.Now(), r.address.Names()
	state := Parse(secret.Data)
	decision := r.lifetimes.Decide(state, names, r.carried.sinceFor(state.Next), now)
	if state, err = r.lifetimes.Issue(decision, names, now); err != nil {
		return State{}, err
	}
	data, err := state.Data()
	if err != nil {
		return State{}, err
	}
	if !missing && maps.EqualFunc(data, secret.Data, slices.Equal) {
		return state, nil
	}
	logf.FromContext(ctx).Info("Renewing certificates", "steps", decision.Steps, "secretMissing", missing)
	secret.Data = data
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: r.secret.Namespace, Name: r.secret.Name}
		return state, r.client.Create(ctx, secret)
	}
	return state, r.client.Update(ctx, secret)
}

// leads reports whether this replica writes the address of the webhooks.
func (r *Reconciler) leads() bool {
	if r.elected == nil {
		return true
	}
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}
