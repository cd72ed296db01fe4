// Package podtransitionpolicy_test tests the errors and warnings of users' modules with a
// real API server, the CRDs, the webhooks of rules and policies and the controller of
// policies.
package podtransitionpolicy_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionpolicy"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
	policywebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionpolicy"
	rulewebhook "github.com/podops-dev/podops/pkg/webhooks/podtransitionrule"
)

// namespace is the namespace of all rules of the tests.
const namespace = "policies"

// admin is the administrator's client of the API server under test, and adminConfig its
// configuration.
var (
	admin       client.Client
	adminConfig *rest.Config
)

// adminKubeconfig is the administrator's kubeconfig for kubectl.
var adminKubeconfig []byte

// TestMain makes the test binary a child that compiles a module when the sandbox starts it
// as one.
func TestMain(m *testing.M) {
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Main(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func TestPodTransitionPolicy(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	RunSpecs(t, "PodTransitionPolicy")
}

var _ = BeforeSuite(func(ctx context.Context) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	Expect(assets).NotTo(BeEmpty(), "KUBEBUILDER_ASSETS must name the folder with kube-apiserver and etcd; `make test-integration` sets it")
	ctrl.SetLogger(GinkgoLogr)

	manifests := filepath.Join("..", "..", "..", "config")
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(manifests, "crd", "bases"), filepath.Join(manifests, "..", "examples", "kvstore", "config", "operator", "crd")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			Paths: []string{filepath.Join(manifests, "webhook", "mutating.yaml"), filepath.Join(manifests, "webhook", "validating.yaml")},
		},
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)
	adminKubeconfig = environment.KubeConfig
	adminConfig = config

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(appsv1alpha1.AddToScheme(scheme)).To(Succeed())
	admin, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	startManager(ctx, config, scheme, environment.WebhookInstallOptions)
})

// startManager runs the parts of pkg/operator for policies, and nothing else.
func startManager(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, install envtest.WebhookInstallOptions) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	policies := sandbox.New(sandbox.Options{})
	Expect(podtransitionpolicy.New(mgr.GetClient(), policies, clock.RealClock{}).SetupWithManager(ctx, mgr, 1)).To(Succeed())
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	mayRead := policywebhook.NewMayRead(clientset.AuthorizationV1().SubjectAccessReviews())
	decoder, checker := admission.NewDecoder(scheme), inspection.New(policies, inspection.Timeout, sandbox.Children, clock.RealClock{})
	for path, handler := range map[string]admission.Handler{
		rulewebhook.MutatePath:     rulewebhook.NewMutator(decoder),
		rulewebhook.ValidatePath:   rulewebhook.NewValidator(decoder, mgr.GetClient(), mgr.GetAPIReader(), checker, webhookclient.Guard{}.CheckURL),
		policywebhook.ValidatePath: policywebhook.NewValidator(decoder, mgr.GetClient(), mgr.GetAPIReader(), checker, mayRead),
		policywebhook.DeletePath:   policywebhook.NewDeleteGuard(decoder, mgr.GetClient(), mgr.GetAPIReader(), mayRead),
	} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{
			// As when the API server sends its certificate: error texts then have names,
			// for users who may read them.
			Handler: handler, WithContextFunc: func(ctx context.Context, _ *http.Request) context.Context {
				return clientauth.WithVerified(ctx, true)
			},
		})
	}
	running, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mgr.Start(running) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).Should(Succeed())
}

// policy returns a PodTransitionPolicy with a spec in YAML.
func policy(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	return parse("kind: PodTransitionPolicy, metadata: {name: " + name + "}, spec: " + spec)
}

// rule returns a PodTransitionRule with one rule, r, of kind rego, in YAML.
func rule(name, rego string) *unstructured.Unstructured {
	GinkgoHelper()
	return parse("kind: PodTransitionRule, metadata: {namespace: " + namespace + ", name: " + name +
		"}, spec: {selector: {matchLabels: {app: web}}, rules: [{name: r, rego: " + rego + "}]}")
}

func parse(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte("{apiVersion: apps.kusionstack.io/v1alpha1, "+text+"}"), object)).To(Succeed())
	return object
}

// created stores objects, in their order.
func created(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
	}
}
