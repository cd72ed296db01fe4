package manifests_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/observed"
)

// calls are the requests that reached a webhook, as "path operation".
type calls struct {
	mu   sync.Mutex
	seen []string
}

// take returns the calls since the last take or reset, sorted, without duplicates: an API server may
// repeat the review of a delete when the object has changed meanwhile.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	slices.Sort(seen)
	return slices.Compact(seen)
}

// reset forgets the calls so far, once the API server has observed the objects that a test has written.
func (c *calls) reset(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(observed.Object(ctx, server.admin, object)).To(Succeed())
	}
	c.take()
}

// at records and allows every request to a path.
func (c *calls) at(path string) *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, fmt.Sprintf("%s %s", path, r.Operation))
		return admission.Allowed("")
	})}
}

// manager is a manager without controllers: it has certificates, and webhooks that
// allow everything.
var manager struct {
	calls        *calls
	certificates *certificates.Reconciler
}

// startManager runs the manager outside the cluster, with only the rights of the manifests.
func startManager() {
	GinkgoHelper()
	address, err := managerprocess.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	_, text, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	port, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred())

	served := certificates.NewServing(clock.RealClock{})
	mgr, err := ctrl.NewManager(configAsManager(), ctrl.Options{
		Scheme:                        server.scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		Cache:                         cache.Options{ByObject: certificates.CacheByObject("podops-system")},
		LeaderElection:                true,
		LeaderElectionID:              appsv1alpha1.ManagerName,
		LeaderElectionNamespace:       "podops-system",
		LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host:    "127.0.0.1",
			Port:    port,
			TLSOpts: []func(*tls.Config){served.ConfigureTLS},
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	manager.certificates, err = certificates.New(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}, certificates.Options{
		Namespace:  "podops-system",
		WebhookURL: "https://" + address,
		Elected:    mgr.Elected(),
		Serving:    served,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(manager.certificates.SetupWithManager(mgr)).To(Succeed())

	manager.calls = &calls{}
	for _, path := range []string{
		"/mutate-v1-pod", "/validate-v1-pod", "/hold-v1-pod-delete", "/hold-v1-pod-eviction",
		"/mutate-apps-kusionstack-io-v1alpha1-podtransitionrule", "/validate-apps-kusionstack-io-v1alpha1-podtransitionrule",
		"/delete-apps-kusionstack-io-v1alpha1-podtransitionrule",
		"/validate-apps-kusionstack-io-v1alpha1-podtransitionpolicy", "/delete-apps-kusionstack-io-v1alpha1-podtransitionpolicy",
	} {
		mgr.GetWebhookServer().Register(path, manager.calls.at(path))
		if strings.HasPrefix(path, certificates.TokenPaths) {
			mgr.GetWebhookServer().Register(path+"/", manager.calls.at(path))
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	Eventually(mgr.Elected()).Should(BeClosed())
	Eventually(func() error { return manager.certificates.Ready(nil) }).Should(Succeed())
	// The manager may be ready before it leads, and API servers receive the address later.
	pod := newPod("default")
	Eventually(func() error { return server.admin.Create(ctx, pod.DeepCopy()) }).Should(Succeed())
	Expect(observed.WebhookConfigurations(ctx, server.admin)).To(Succeed())
	manager.calls.reset(ctx)
}
