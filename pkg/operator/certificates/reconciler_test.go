package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const testNamespace = "podops-system"

func serviceAt(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: testNamespace, Name: ServiceName, Path: &path},
	}
}

func testConfigurations() []client.Object {
	return []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: MutatingConfigurationName},
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				{Name: "pods.podops.kusionstack.io", ClientConfig: serviceAt("/mutate-v1-pod")},
				{Name: "rules.podops.kusionstack.io", ClientConfig: serviceAt("/mutate-rule")},
			},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ValidatingConfigurationName},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "pods.podops.kusionstack.io", ClientConfig: serviceAt("/validate-v1-pod")},
			},
		},
	}
}

// cluster is a fake API server, its replicas and their clock.
type cluster struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	client.WithWatch
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	return &cluster{
		t:         t,
		clock:     clocktesting.NewFakePassiveClock(epoch),
		WithWatch: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build(),
	}
}

// replica starts a manager, whose calls the interceptors see.
func (c *cluster) replica(calls interceptor.Funcs, options Options) *Reconciler {
	c.t.Helper()
	intercepted := interceptor.NewClient(c.WithWatch, calls)
	options.Namespace = testNamespace
	r, err := New(intercepted, intercepted, c.clock, options)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// reconcile runs the replica and returns when it must run again.
func (c *cluster) reconcile(r *Reconciler) time.Duration {
	c.t.Helper()
	result, err := r.Reconcile(context.Background(), reconcile.Request{})
	if err != nil {
		c.t.Fatalf("reconciling: %v", err)
	}
	if result.RequeueAfter <= 0 {
		c.t.Fatalf("the replica is not requeued: %+v", result)
	}
	return result.RequeueAfter
}

func (c *cluster) secret() *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: testNamespace, Name: SecretName}, secret); err != nil {
		c.t.Fatal(err)
	}
	return secret
}

// webhooks returns the stored client configurations of both objects.
func (c *cluster) webhooks() []admissionregistrationv1.WebhookClientConfig {
	c.t.Helper()
	var all []admissionregistrationv1.WebhookClientConfig
	for _, configuration := range configurations() {
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(configuration.object), configuration.object); err != nil {
			c.t.Fatal(err)
		}
		for _, config := range configuration.clients() {
			all = append(all, *config)
		}
	}
	return all
}

// requireTrusted fails unless every webhook trusts the certificate of the replica.
func (c *cluster) requireTrusted(r *Reconciler) {
	c.t.Helper()
	certificate, err := r.serving.getCertificate(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, config := range c.webhooks() {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(config.CABundle)
		_, err := certificate.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: c.clock.Now(), DNSName: "podops-webhook.podops-system.svc",
		})
		if err != nil {
			c.t.Errorf("webhook does not trust the certificate: %v", err)
		}
	}
}

func TestReconcileFromNothing(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	r := c.replica(interceptor.Funcs{}, Options{})

	config := &tls.Config{}
	r.serving.ConfigureTLS(config)
	if _, err := config.GetCertificate(nil); !errors.Is(err, ErrNotReady) {
		t.Errorf("before: want ErrNotReady, got %v", err)
	}
	if err := r.Ready(nil); !errors.Is(err, ErrNotReady) {
		t.Errorf("before: want not ready, got %v", err)
	}

	c.reconcile(r)
	c.requireTrusted(r)
	if err := r.Ready(nil); err != nil {
		t.Errorf("after: %v", err)
	}
	if config := c.webhooks()[0]; config.Service == nil || *config.Service.Path != "/mutate-v1-pod" {
		t.Errorf("the service was changed: %+v", config)
	}
}

func TestReconcileWritesOnlyDifferences(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	c.reconcile(c.replica(interceptor.Funcs{}, Options{}))

	forbidden := errors.New("nothing has changed")
	r := c.replica(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return forbidden },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return forbidden },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden
		},
	}, Options{})
	c.reconcile(r)
	c.requireTrusted(r)
}

func TestReconcileRepairsTheSecret(t *testing.T) {
	cases := map[string]func(*cluster){
		"deleted": func(c *cluster) {
			if err := c.Delete(context.Background(), c.secret()); err != nil {
				c.t.Fatal(err)
			}
		},
		"garbage": func(c *cluster) {
			secret := c.secret()
			for key := range secret.Data {
				secret.Data[key] = []byte("garbage")
			}
			if err := c.Update(context.Background(), secret); err != nil {
				c.t.Fatal(err)
			}
		},
		"emptied": func(c *cluster) {
			secret := c.secret()
			secret.Data = nil
			if err := c.Update(context.Background(), secret); err != nil {
				c.t.Fatal(err)
			}
		},
		"expired": func(c *cluster) { c.clock.SetTime(epoch.Add(10 * 365 * day)) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, testConfigurations()...)
			r := c.replica(interceptor.Funcs{}, Options{})
			c.reconcile(r)
			old := c.secret().Data[servingCertKey]

			damage(c)
			c.reconcile(r)
			if bytes.Equal(c.secret().Data[servingCertKey], old) {
				t.Error("the certificate was not replaced")
			}
			c.requireTrusted(r)
			if err := r.Ready(nil); err != nil {
				t.Errorf("not ready: %v", err)
			}
		})
	}
}

func TestReadyNeedsAValidCertificate(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	r := c.replica(interceptor.Funcs{}, Options{})
	c.reconcile(r)
	c.clock.SetTime(epoch.Add(91 * day))
	if err := r.Ready(nil); err == nil {
		t.Error("ready with an expired certificate")
	}
}

// elsewhere is a Publisher of another server.
type elsewhere struct {
	bundle []byte
	err    error
}

func (e *elsewhere) Publish(_ context.Context, publication Publication) ([]string, error) {
	e.bundle = publication.Bundle
	return nil, e.err
}

func (e *elsewhere) Watches() []Watched { return nil }

// TestAnotherServerHasItsOwnCertificate has a server with a Secret and a Service of its own, whose CAs cannot be published at
// first.
func TestAnotherServerHasItsOwnCertificate(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	publisher := &elsewhere{err: errors.New("no rights")}
	r := c.replica(interceptor.Funcs{}, Options{Secret: "hook-certs", Service: "hook", Publisher: publisher})
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, publisher.err) {
		t.Errorf("want the error of the Publisher, got %v", err)
	}
	if err := r.Serving(nil); err != nil {
		t.Errorf("a valid certificate is not served: %v", err)
	}
	if err := r.Ready(nil); !errors.Is(err, publisher.err) {
		t.Errorf("ready although the CAs are not published: %v", err)
	}
	publisher.err = nil
	c.reconcile(r)
	if err := r.Ready(nil); err != nil {
		t.Error(err)
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: testNamespace, Name: "hook-certs"}, secret); err != nil {
		t.Fatal(err)
	}
	if state := Parse(secret.Data); !bytes.Equal(state.Bundle(), publisher.bundle) || !state.serves([]string{"hook.podops-system.svc"}, c.clock.Now()) {
		t.Error("the Secret has another CA than was published, or a certificate for another name")
	}
	for _, config := range c.webhooks() {
		if len(config.CABundle) > 0 {
			t.Errorf("published to the webhooks of PodOps: %+v", config)
		}
	}
	c.clock.SetTime(epoch.Add(91 * day))
	if err := r.Serving(nil); err == nil {
		t.Error("an expired certificate is served")
	}
}

func TestReadyNeedsBothConfigurations(t *testing.T) {
	c := newCluster(t, testConfigurations()[0])
	r := c.replica(interceptor.Funcs{}, Options{})
	c.reconcile(r)
	if err := r.Ready(nil); err == nil {
		t.Fatal("ready without the validating configuration")
	}
	if err := c.Create(context.Background(), testConfigurations()[1]); err != nil {
		t.Fatal(err)
	}
	c.reconcile(r)
	if err := r.Ready(nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestReconcileReportsWriteErrors(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "webhooks"}, "x", nil)
	c := newCluster(t, testConfigurations()...)
	r := c.replica(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return denied
		},
	}, Options{})
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); !apierrors.IsForbidden(err) {
		t.Errorf("want the error of the API server, got %v", err)
	}
	if err := r.Ready(nil); err == nil {
		t.Error("ready although nothing trusts the certificate")
	}
}

// TestReconcileRetriesConflictsOfConfigurations shows that a configuration that another client has
// changed is read again soon, without an error.
func TestReconcileRetriesConflictsOfConfigurations(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	conflicts := 1
	r := c.replica(interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if conflicts--; conflicts >= 0 {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
			}
			return w.Patch(ctx, o, p, opts...)
		},
	}, Options{})
	if after := c.reconcile(r); after != conflictDelay {
		t.Errorf("want a retry after %s, got %s", conflictDelay, after)
	}
	c.reconcile(r)
	c.requireTrusted(r)
}

// TestReplicasMeetInTheSecret shows that two replicas that start at the same moment end with one
// certificate: the slower one reads the Secret of the faster one.
func TestReplicasMeetInTheSecret(t *testing.T) {
	cases := map[string]func(*cluster){
		"both create": func(*cluster) {},
		"both update": func(c *cluster) {
			empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: SecretName}}
			if err := c.Create(context.Background(), empty); err != nil {
				c.t.Fatal(err)
			}
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, testConfigurations()...)
			prepare(c)
			fast := c.replica(interceptor.Funcs{}, Options{})
			raced := false
			race := func() {
				if !raced {
					raced = true
					c.reconcile(fast)
				}
			}
			slow := c.replica(interceptor.Funcs{
				Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					race()
					return w.Create(ctx, o, opts...)
				},
				Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					race()
					return w.Update(ctx, o, opts...)
				},
			}, Options{})

			c.reconcile(slow)
			if !raced {
				t.Fatal("the slow replica never wrote")
			}
			c.requireTrusted(slow)
			c.requireTrusted(fast)
			a, _ := slow.serving.getCertificate(nil)
			b, _ := fast.serving.getCertificate(nil)
			if !a.Leaf.Equal(b.Leaf) {
				t.Error("the replicas show different certificates")
			}
		})
	}
}

// TestRotationKeepsTrust runs a whole rotation of the CA with two replicas.
func TestRotationKeepsTrust(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	replicas := []*Reconciler{c.replica(interceptor.Funcs{}, Options{}), c.replica(interceptor.Funcs{}, Options{})}
	for _, r := range replicas {
		c.reconcile(r)
	}
	first := c.secret().Data[currentCertKey]
	for c.clock.Now().Before(epoch.Add(3 * 365 * day)) {
		wake := 366 * day
		for _, r := range replicas {
			wake = min(wake, c.reconcile(r))
			for _, shown := range replicas {
				c.requireTrusted(shown)
			}
		}
		c.clock.SetTime(c.clock.Now().Add(wake))
	}
	if slices.Equal(first, c.secret().Data[currentCertKey]) {
		t.Error("the CA was never replaced")
	}
}

func TestLeaderPointsTheWebhooksAtItsURL(t *testing.T) {
	c := newCluster(t, testConfigurations()...)
	elected := make(chan struct{})
	r := c.replica(interceptor.Funcs{}, Options{WebhookURL: "https://127.0.0.1:9443", Elected: elected})

	c.reconcile(r)
	if config := c.webhooks()[0]; config.Service == nil || len(config.CABundle) == 0 {
		t.Errorf("before election: want the bundle and the service, got %+v", config)
	}

	close(elected)
	c.reconcile(r)
	got := map[string]bool{}
	for _, config := range c.webhooks() {
		if config.URL == nil || config.Service != nil {
			t.Fatalf("want a URL only, got %+v", config)
		}
		got[*config.URL] = true
	}
	want := map[string]bool{
		"https://127.0.0.1:9443/mutate-v1-pod":   true,
		"https://127.0.0.1:9443/mutate-rule":     true,
		"https://127.0.0.1:9443/validate-v1-pod": true,
	}
	if !maps.Equal(want, got) {
		t.Errorf("want %v, got %v", want, got)
	}
	certificate, err := r.serving.getCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := certificate.Leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}

	// A manager inside the cluster takes over.
	inside := c.replica(interceptor.Funcs{}, Options{})
	c.reconcile(inside)
	if config := c.webhooks()[0]; config.URL != nil || config.Service == nil || *config.Service.Path != "/mutate-v1-pod" {
		t.Errorf("want the service again, got %+v", config)
	}
	c.requireTrusted(inside)
}
