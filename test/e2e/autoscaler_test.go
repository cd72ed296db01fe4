package e2e_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

// cpuUsage is the API metrics.k8s.io of the cluster: the Ready pods of one scenario share a load equally.
type cpuUsage struct {
	p    scenario
	load atomic.Int64 // in thousandths of a CPU
}

const metricsVersion = "metrics.k8s.io/v1beta1"

// serveCPUUsage serves the API until the scenario ends. The API server proxies requests to it.
func serveCPUUsage(ctx context.Context, p scenario) *cpuUsage {
	GinkgoHelper()
	usage := &cpuUsage{p: p}
	server := httptest.NewTLSServer(usage)
	DeferCleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseInt(port, 10, 32)
	Expect(err).NotTo(HaveOccurred())

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "metrics"}}
	service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"}
	Expect(p.admin.Create(ctx, service)).To(Succeed())
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": p.namespace, "name": service.Name, "port": number},
		},
	}}
	Expect(p.admin.Create(ctx, api)).To(Succeed())
	// The namespace controller waits for every API that is registered.
	DeferCleanup(func(ctx context.Context) { Expect(p.admin.Delete(ctx, api)).To(Succeed()) })
	return usage
}

// ServeHTTP implements http.Handler: the discovery document, and the list of the pods of a namespace.
func (u *cpuUsage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch r.URL.Path {
	case "/apis/" + metricsVersion:
		list := metav1.APIResourceList{GroupVersion: metricsVersion, APIResources: []metav1.APIResource{
			{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}},
		}}
		list.Kind, list.APIVersion = "APIResourceList", "v1"
		answer = list
	case "/apis/" + metricsVersion + "/namespaces/" + u.p.namespace + "/pods":
		pods := &corev1.PodList{}
		if err := u.p.admin.List(r.Context(), pods, client.InNamespace(u.p.namespace)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer = u.metricsOf(pods.Items)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone tries again
}

func (u *cpuUsage) metricsOf(pods []corev1.Pod) map[string]any {
	var serving []corev1.Pod
	for _, pod := range pods {
		if ready, err := expect.BeReady().Match(&pod); err == nil && ready {
			serving = append(serving, pod)
		}
	}
	items := []any{}
	for _, pod := range serving {
		items = append(items, map[string]any{
			"metadata":  map[string]any{"namespace": pod.Namespace, "name": pod.Name},
			"timestamp": time.Now().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{"name": pod.Spec.Containers[0].Name, "usage": map[string]any{
				"cpu": resource.NewMilliQuantity(u.load.Load()/int64(len(serving)), resource.DecimalSI).String(),
			}}},
		})
	}
	return map[string]any{"kind": "PodMetricsList", "apiVersion": metricsVersion, "metadata": map[string]any{}, "items": items}
}

// requestCPU requests 100m for each pod.
func requestCPU(deployment *appsv1.Deployment) {
	deployment.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
}

// autoscaler creates a HorizontalPodAutoscaler that gives a Deployment of requestCPU a pod for each 50m, from one to four.
func (p scenario) autoscaler(ctx context.Context, deployment *appsv1.Deployment) *autoscalingv2.HorizontalPodAutoscaler {
	GinkgoHelper()
	autoscaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"}}
	autoscaler.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment.Name},
		MinReplicas:    new(int32(1)), MaxReplicas: 4,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
		}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0))}},
	}
	Expect(p.admin.Create(ctx, autoscaler)).To(Succeed())
	return autoscaler
}

var _ = Describe("A HorizontalPodAutoscaler", func() {
	It("counts pods that wait to leave, and takes them back when the load rises", Label(mainStories), func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		deployment := p.deployment(ctx, 4, requestCPU)
		before := p.list(ctx)
		usage := serveCPUUsage(ctx, p)
		usage.load.Store(200) // 50 % of the 100m that each of four pods requests
		autoscaler := p.autoscaler(ctx, deployment)
		status := func(ctx context.Context) (autoscalingv2.HorizontalPodAutoscalerStatus, error) {
			err := p.admin.Get(ctx, client.ObjectKeyFromObject(autoscaler), autoscaler)
			return autoscaler.Status, err
		}
		utilization := func(ctx context.Context) (int32, error) {
			current, err := status(ctx)
			if err != nil || len(current.CurrentMetrics) == 0 || current.CurrentMetrics[0].Resource == nil {
				return -1, err
			}
			return *current.CurrentMetrics[0].Resource.Current.AverageUtilization, nil
		}
		Eventually(ctx, utilization).Should(BeEquivalentTo(50))
		Eventually(ctx, status).Should(HaveField("DesiredReplicas", BeEquivalentTo(4)))

		By("a lower load, which two pods could serve")
		ledger := openLedger(p)
		usage.load.Store(100)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		writes := func() int {
			return len(ledger.byAllUsers(audit.On("deployments/scale"), audit.InNamespace(p.namespace),
				audit.ServiceAccount("kube-system", "horizontal-pod-autoscaler")))
		}
		// The autoscaler writes its status after the scale.
		Eventually(ctx, status).Should(HaveField("DesiredReplicas", BeEquivalentTo(2)))
		Consistently(ctx, status).WithTimeout(2 * holdWindow).Should(HaveField("DesiredReplicas", BeEquivalentTo(2)))
		Expect(writes()).To(Equal(1), "the four pods together have the load of two: the number does not change while they wait")
		Expect(utilization(ctx)).To(BeEquivalentTo(25), "the pods that wait serve, and count")

		By("a load that the four pods serve at the target, the two that wait included")
		usage.load.Store(200)
		Eventually(ctx, utilization).Should(BeEquivalentTo(50))
		Consistently(ctx, status).Should(HaveField("DesiredReplicas", BeEquivalentTo(2)))

		By("a higher load")
		usage.load.Store(240)
		Eventually(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Expect(uids(p.list(ctx))).To(ConsistOf(uids(before)))
		Eventually(ctx, p.annotatedSets).Should(BeEmpty())

		By("a lower load again, and approvals")
		usage.load.Store(100)
		Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))
		p.approveAll(ctx, p.list(ctx))
		Eventually(ctx, p.list).Should(And(HaveLen(2), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Expect(uids(before)).To(ContainElements(uids(p.list(ctx))))
		Expect(writes()).To(Equal(3))
	})
})
