// Package install_test installs PodOps as users do, into a real API server: with kustomize, from this
// repository as a remote base, with any components and in any namespace, and with the targets of the Makefile.
package install_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// defaultNamespace is the namespace of config/default.
	defaultNamespace = "podops-system"

	// otherNamespace is a namespace that users may choose.
	otherNamespace = "shop-ops"
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Install")
}

// server is an API server without PodOps. It has the two namespaces, and the CustomResourceDefinitions of
// prometheus-operator.
var server struct {
	config     *rest.Config
	kubeconfig []byte
	client     client.Client
	warnings   *warnings
}

var _ = BeforeSuite(func(ctx context.Context) {
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(),
		"KUBEBUILDER_ASSETS must name the folder with kube-apiserver, etcd and kubectl; `make test-integration` sets it")
	ctrl.SetLogger(GinkgoLogr)
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    os.Getenv("KUBEBUILDER_ASSETS"),
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
		CRDDirectoryPaths:        []string{filepath.Join("testdata", "crds")},
		ErrorIfCRDPathMissing:    true,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)

	server.warnings = &warnings{}
	config.WarningHandler = server.warnings
	config.QPS, config.Burst = 500, 500
	server.config, server.kubeconfig = config, environment.KubeConfig
	server.client = clientAs("")
	for _, name := range []string{defaultNamespace, otherNamespace} {
		Expect(server.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
})

// clientAs returns a client that acts as a user, or as the administrator when user is empty.
func clientAs(user string) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	config := rest.CopyConfig(server.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// kubectl runs kubectl, and returns its output.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...).CombinedOutput() //nolint:gosec // The kubectl of the local control plane.
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// warnings collects the warnings of an API server.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler. Requests are sent one at a time.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }
