package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// drainServer is the drain endpoint of a pod, on its address. It answers 202 while connections are left.
type drainServer struct {
	connections, calls atomic.Int64

	// early counts the calls while the pod was Ready.
	early atomic.Int64
}

// serveDrain serves the drain endpoint of a pod until the story ends.
func serveDrain(p scenario, pod *corev1.Pod) *drainServer {
	GinkgoHelper()
	d := &drainServer{}
	listener, err := net.Listen("tcp", net.JoinHostPort(pod.Status.PodIP, "8081"))
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.calls.Add(1)
		if now, err := p.seeing(pod.Name)(r.Context()); err == nil && isReady(now) {
			d.early.Add(1)
		}
		if d.connections.Load() > 0 {
			w.WriteHeader(http.StatusAccepted)
		}
	})}
	go server.Serve(listener) //nolint:errcheck // it is closed
	DeferCleanup(server.Close)
	return d
}

var _ = Describe("A pod with a drain endpoint", func() {
	var p scenario

	draining := func(timeout string) func(*appsv1.Deployment) {
		return func(deployment *appsv1.Deployment) {
			deployment.Spec.Template.Annotations = map[string]string{
				appsv1alpha1.DrainEndpointAnnotationKey: ":8081/drain", appsv1alpha1.DrainTimeoutAnnotationKey: timeout,
			}
		}
	}

	// begun creates a Deployment, and begins an operation on a pod on which connections are left.
	begun := func(ctx context.Context, timeout string) (*corev1.Pod, *drainServer) {
		GinkgoHelper()
		p.deployment(ctx, 2, draining(timeout))
		pod := p.list(ctx)[0]
		server := serveDrain(p, pod)
		server.connections.Store(1)
		p.begin(ctx, pod, "a", "update")
		Eventually(server.calls.Load).Should(BeNumerically(">", 1))
		Expect(p.get(ctx, pod.Name)).NotTo(expect.BeOperable("a"))
		return pod, server
	}

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, maxUnavailable("50%"))
	})

	It("is evicted once no connection is left", Label(mainStories), func(ctx context.Context) {
		p.deployment(ctx, 2, draining("1h"))
		pod := p.list(ctx)[0]
		server := serveDrain(p, pod)
		server.connections.Store(1)
		held := p.evict(ctx, pod)
		Expect(held).To(Satisfy(apierrors.IsTooManyRequests))
		Expect(held).To(MatchError(ContainSubstring("drain endpoint :8081/drain")), "the answer names what the pod waits for")
		Expect(server.calls.Load()).To(BeNumerically(">", 1))
		Expect(p.get(ctx, pod.Name).DeletionTimestamp).To(BeNil())
		server.connections.Store(0)
		Eventually(ctx, func(ctx context.Context) error { return p.evict(ctx, pod) }).Should(Succeed())
		Expect(server.early.Load()).To(BeZero(), "it is called once traffic is off")
		Expect(p.notes("DrainTimedOut")(ctx)).To(BeEmpty())
	})

	It("is operated on after the time-out, and reports why it waits until then", func(ctx context.Context) {
		pod, _ := begun(ctx, "1h")
		explain := func(ctx context.Context) string {
			stdout, _ := p.plugin(ctx, "explain", "pod/"+pod.Name)
			return stdout
		}
		Eventually(ctx, explain).Should(MatchRegexp(`waits up to 1h0m0s for\s+the\s+drain\s+endpoint\s+:8081/drain`))
		Eventually(ctx, p.seeing(pod.Name)).Should(haveGateMessage("drain endpoint :8081/drain", "it answers 202"))
		Eventually(ctx, p.notes("TrafficStillOn")).Should(ContainElement(ContainSubstring("it answers 202")))
		p.kubectl(ctx, "--namespace", p.namespace, "annotate", "pod/"+pod.Name, appsv1alpha1.DrainTimeoutAnnotationKey+"=1s", "--overwrite")
		Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable("a"))
		Eventually(ctx, p.notes("DrainTimedOut")).Should(ConsistOf(
			"operated on although the drain endpoint :8081/drain has not confirmed within 1s that no connection is left: it answers 202"))
		p.setLabels(ctx, p.get(ctx, pod.Name), map[string]any{operating + "a": nil})
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveGateReason("")))
	})

	It("serves again when the operation is cancelled, and is called again before the next one", func(ctx context.Context) {
		pod, server := begun(ctx, "1h")
		p.label(ctx, p.get(ctx, pod.Name), undo+"a", "update")
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		before := server.calls.Load()
		Consistently(server.calls.Load).WithTimeout(3*time.Second).Should(BeNumerically("<=", before+1), "it is not called any more")
		p.begin(ctx, p.get(ctx, pod.Name), "b", "update")
		Eventually(server.calls.Load).Should(BeNumerically(">", before+1))
		Expect(p.get(ctx, pod.Name)).NotTo(expect.BeOperable("b"))
		server.connections.Store(0)
		Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable("b"))
	})

	It("is called by the next leader", func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p = newScenario(ctx)
		p.rule(ctx, maxUnavailable("50%"))
		pod, server := begun(ctx, "1h")
		team.killLeader(ctx)
		before := server.calls.Load()
		Eventually(server.calls.Load).Should(BeNumerically(">", before))
		Expect(p.get(ctx, pod.Name)).NotTo(expect.BeOperable("a"))
		server.connections.Store(0)
		Eventually(ctx, p.seeing(pod.Name)).Should(expect.BeOperable("a"))
	})

	It("does not accept an endpoint that cannot be called", func(ctx context.Context) {
		p.pods(ctx, 1, nil)
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"http://10.0.0.1/"}}}`, appsv1alpha1.DrainEndpointAnnotationKey))
		Expect(p.admin.Patch(ctx, p.list(ctx)[0], patch)).To(MatchError(ContainSubstring(`is "http://10.0.0.1/", want a port and a path such as :8081/drain`)))
	})
})
