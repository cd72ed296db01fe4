// Package resourceconsist_test runs a controller of package resourceconsist against a real
// API server: finalizers, conflicts, terminating objects and events are the API server's.
package resourceconsist_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/test/builders"
)

var (
	admin    client.Client
	balancer = newBalancer()
	registry = prometheus.NewRegistry()
)

func TestResourceConsist(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "ResourceConsist")
}

var _ = BeforeSuite(func() {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	Expect(assets).NotTo(BeEmpty(), "KUBEBUILDER_ASSETS must name the folder with kube-apiserver and etcd; `make test-integration` sets it")
	ctrl.SetLogger(GinkgoLogr)
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)
	config.QPS = -1

	admin, err = client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	Expect(err).NotTo(HaveOccurred())
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: clientgoscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	balancer.client = mgr.GetClient()
	Expect(resourceconsist.AddToMgr(mgr, balancer, resourceconsist.WithRegistry(registry))).To(Succeed())
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mgr.Start(running) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
})

// in creates a namespace with a Service named web, which selects app=web.
func in(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "consist-"}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Expect(admin.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "web", Labels: map[string]string{appsv1alpha1.ControlLabelKey: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})).To(Succeed())
	return namespace.Name
}

// serving creates a pod that is ready.
func serving(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	pod := builders.MakePod(name).Namespace(namespace).UID("").Label("app", "web").Available().Obj()
	status := pod.Status
	Expect(admin.Create(ctx, pod)).To(Succeed())
	base := pod.DeepCopy()
	pod.Status = status
	Expect(admin.Status().Patch(ctx, pod, client.MergeFrom(base))).To(Succeed())
}

// finalizers returns a function that returns the finalizers of a pod; an error when it does
// not exist.
func finalizers(ctx context.Context, namespace, name string) func() ([]string, error) {
	return func() ([]string, error) {
		pod := &corev1.Pod{}
		err := admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)
		return pod.Finalizers, err
	}
}

// protected returns a function that returns the names of the pods that carry the finalizer
// of web.
func protected(ctx context.Context, namespace string) func() (map[string]bool, error) {
	return func() (map[string]bool, error) {
		var pods corev1.PodList
		err := admin.List(ctx, &pods, client.InNamespace(namespace))
		names := map[string]bool{}
		for i := range pods.Items {
			for _, finalizer := range pods.Items[i].Finalizers {
				if finalizer == resourceconsist.GenerateLifecycleFinalizer("web") {
					names[pods.Items[i].Name] = true
				}
			}
		}
		return names, err
	}
}

func named(i int) string { return fmt.Sprintf("web-%03d", i) }
