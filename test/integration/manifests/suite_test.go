// Package manifests_test applies the manifests to a real API server and tests which
// requests reach a webhook, which writes to pods/status are rejected, and which rights the
// manager has.
package manifests_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	managerUser    = "system:serviceaccount:podops-system:podops-controller-manager"
	replicaSetUser = "system:serviceaccount:kube-system:replicaset-controller"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	RunSpecs(t, "Manifests")
}

// server is the API server under test, with config/default applied.
var server struct {
	config *rest.Config
	scheme *runtime.Scheme
	admin  client.Client
}

var _ = BeforeSuite(func(ctx context.Context) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	Expect(assets).NotTo(BeEmpty(), "KUBEBUILDER_ASSETS must name the folder with kube-apiserver, etcd and kubectl; `make test-integration` sets it")
	ctrl.SetLogger(GinkgoLogr)

	environment := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	config, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)

	server.config = config
	server.scheme = runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(server.scheme)).To(Succeed())
	Expect(appsv1alpha1.AddToScheme(server.scheme)).To(Succeed())
	server.admin = as("", nil)

	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, environment.KubeConfig, 0o600)).To(Succeed())
	var output bytes.Buffer
	apply := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), "--kubeconfig", kubeconfig,
		"apply", "--server-side", "-k", filepath.Join("..", "..", "..", "config", "default"))
	apply.Stdout, apply.Stderr = &output, &output
	Expect(apply.Run()).To(Succeed(), output.String())
	Expect(output.String()).NotTo(ContainSubstring("Warning"))

	awaitPolicies(ctx)
	startManager()
})

// awaitPolicies waits until the API server evaluates every admission policy of the manifests. It reads
// policies and their bindings by watches, in the order of their writes, so it evaluates these once it
// evaluates one that is created after them.
func awaitPolicies(ctx context.Context) {
	GinkgoHelper()
	sentinel := metav1.ObjectMeta{Name: "manifests-applied"}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: sentinel}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "object.metadata.name != '" + sentinel.Name + "'"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: sentinel}
	binding.Spec.PolicyName = sentinel.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	Expect(server.admin.Create(ctx, policy)).To(Succeed())
	Expect(server.admin.Create(ctx, binding)).To(Succeed())
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: sentinel.Name}}
	Eventually(func() error { return server.admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).
		Should(MatchError(ContainSubstring("ValidatingAdmissionPolicy '" + sentinel.Name + "'")))
	Expect(server.admin.Delete(ctx, binding)).To(Succeed())
	Expect(server.admin.Delete(ctx, policy)).To(Succeed())
}

// as returns a client that acts as the user, or as the administrator when that is empty.
func as(user string, groups []string) client.Client {
	GinkgoHelper()
	c, err := client.New(configAs(user, groups), client.Options{Scheme: server.scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func configAs(user string, groups []string) *rest.Config {
	config := rest.CopyConfig(server.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// configAsManager has the identity and exactly the rights of the manager.
func configAsManager() *rest.Config {
	return configAs(managerUser, []string{"system:serviceaccounts", "system:serviceaccounts:podops-system", "system:authenticated"})
}

// newNamespace creates a namespace and deletes it with the test; without a namespace
// controller it stays terminating.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "manifests-"}}
	Expect(server.admin.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// newPod returns a controlled pod.
func newPod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    namespace,
			GenerateName: "web-",
			Labels:       map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue, "app": "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

func stored(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	Expect(server.admin.Create(ctx, pod)).To(Succeed())
	return pod
}
