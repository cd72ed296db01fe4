package install_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// localContext is the context that `make cluster-up` writes.
const localContext = "podops-local"

// plugin returns the path of the plugin, which make builds before this suite.
func plugin() string {
	GinkgoHelper()
	path := filepath.Join(os.Getenv("PODOPS_BIN"), "kubectl-podops")
	Expect(path).To(BeAnExistingFile(), "`make test-integration` builds it")
	return path
}

// writeKubeconfig writes a kubeconfig of the server, whose context has the given name, and returns its path.
func writeKubeconfig(name string) string {
	GinkgoHelper()
	config, err := clientcmd.Load(server.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.Contexts = map[string]*clientcmdapi.Context{name: config.Contexts[config.CurrentContext]}
	config.CurrentContext = name
	path := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// target returns the command make for a target of the repository, with a kubeconfig. The plugin is built already.
func target(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	GinkgoHelper()
	plugin()
	command := exec.CommandContext(ctx, "make", append([]string{ //nolint:gosec // A target of this repository.
		"--no-print-directory", "--directory", filepath.Join("..", "..", ".."), "--old-file=bin/kubectl-podops", "BIN=" + os.Getenv("PODOPS_BIN"),
	}, args...)...)
	for _, variable := range os.Environ() {
		// The make that runs this test hands its own variables on, and the variables of its command line.
		name, _, _ := strings.Cut(variable, "=")
		if !slices.Contains([]string{"KUBECONFIG", "MFLAGS", "IMG", "YES", "ARGS"}, name) && !strings.HasPrefix(name, "MAKE") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, "KUBECONFIG="+kubeconfig)
	return command
}

// awaitKinds waits until the server lists every kind of PodOps. A CustomResourceDefinition that is deleted before that
// stays: the server retries to list its objects for minutes.
func awaitKinds(ctx context.Context) {
	GinkgoHelper()
	for _, kind := range []string{"PodTransitionRuleList", "PodTransitionPolicyList", "PodOperationList", "TrafficAdapterList"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("apps.kusionstack.io/v1alpha1")
		list.SetKind(kind)
		Eventually(ctx, func(ctx context.Context) error { return server.client.List(ctx, list) }).WithTimeout(time.Minute).Should(Succeed(), kind)
	}
}

// crds returns the names of the CustomResourceDefinitions of PodOps in the server.
func crds(ctx context.Context) []string {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	Expect(server.client.List(ctx, list)).To(Succeed())
	var names []string
	for _, item := range list.Items {
		if strings.HasSuffix(item.GetName(), ".apps.kusionstack.io") {
			names = append(names, item.GetName())
		}
	}
	return names
}

var _ = Describe("The targets of the Makefile", Ordered, func() {
	const question = "Continue? [y/N]"

	var production string // a kubeconfig of a cluster that is not the local control plane

	BeforeAll(func() {
		production = writeKubeconfig("production")
	})

	// refused runs a target that must fail, and returns what it prints.
	refused := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		out, err := target(ctx, production, args...).CombinedOutput()
		Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), string(out))
		return string(out)
	}

	// succeeds runs a target, and returns what it prints.
	succeeds := func(ctx context.Context, kubeconfig string, args ...string) string {
		GinkgoHelper()
		out, err := target(ctx, kubeconfig, args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		return string(out)
	}

	// firstLine has the cluster and the context.
	firstLine := func(name string) string {
		return "cluster " + strings.TrimSuffix(server.config.Host, "/") + `, context "` + name + `": `
	}

	It("change nothing without a terminal and without YES=1", func(ctx context.Context) {
		for _, args := range [][]string{{"install"}, {"deploy", "IMG=registry.example/podops-manager:v1"}, {"install", "YES=0"}} {
			Expect(refused(ctx, args...)).To(And(
				HavePrefix(firstLine("production")),
				ContainSubstring("nothing was changed: standard input is no terminal to confirm on; add --yes, or YES=1 for make"),
				Not(ContainSubstring(question))), "make %v", args)
		}
		Expect(crds(ctx)).To(BeEmpty())
	})

	It("change nothing when the answer is no", func(ctx context.Context) {
		for _, answer := range []string{"n\n", "\n"} {
			shown, err := onTerminal(target(ctx, production, "install"), answer)
			Expect(err).To(HaveOccurred())
			Expect(shown).To(And(ContainSubstring(firstLine("production")), ContainSubstring(question), ContainSubstring("nothing was changed")))
		}
		Expect(crds(ctx)).To(BeEmpty())
	})

	It("install the CRDs when the answer is yes", func(ctx context.Context) {
		shown, err := onTerminal(target(ctx, production, "install"), "y\n")
		Expect(err).NotTo(HaveOccurred(), shown)
		Expect(shown).To(And(ContainSubstring(firstLine("production")+"apply 5 objects of PodOps"), ContainSubstring(question)))
		Expect(crds(ctx)).To(HaveLen(5))
		Expect(client.IgnoreNotFound(server.client.Get(ctx, managerKey(), &appsv1.Deployment{}))).To(Succeed())
	})

	It("leave the CRDs without a confirmation, and remove them with YES=1", func(ctx context.Context) {
		Expect(refused(ctx, "uninstall")).To(HavePrefix(firstLine("production")))
		Expect(crds(ctx)).To(HaveLen(5))
		Expect(succeeds(ctx, production, "uninstall", "YES=1")).To(And(HavePrefix(firstLine("production")), Not(ContainSubstring(question))))
		Expect(crds(ctx)).To(BeEmpty())
	})

	It("deploy no image but the given one", func(ctx context.Context) {
		Expect(refused(ctx, "deploy", "YES=1")).To(And(
			ContainSubstring("make deploy needs an image"), ContainSubstring("IMG=<registry>/podops-manager:<tag>"), ContainSubstring("make image builds one")))
		Expect(crds(ctx)).To(BeEmpty())

		DeferCleanup(deleteAll, parse(kubectl(ctx, "kustomize", overlay{components: []string{"adapters"}}.write())))
		out := succeeds(ctx, production, "deploy", "IMG=registry.example:5000/podops-manager:v1", "YES=1", "ARGS=--wait=false --components adapters")
		Expect(out).To(HavePrefix(firstLine("production")))
		var deployment appsv1.Deployment
		Expect(server.client.Get(ctx, managerKey(), &deployment)).To(Succeed())
		Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("registry.example:5000/podops-manager:v1"))
		awaitKinds(ctx)

		By("leaving it without a confirmation")
		Expect(refused(ctx, "undeploy")).To(HavePrefix(firstLine("production") + "remove PodOps"))
		Expect(server.client.Get(ctx, managerKey(), &deployment)).To(Succeed())
		Expect(*deployment.Spec.Replicas).To(BeEquivalentTo(2))

		By("undeploying it with YES=1") // The namespace stays: no controller of this server removes namespaces.
		out = succeeds(ctx, production, "undeploy", "YES=1", "ARGS=--keep-manifests")
		Expect(out).To(HavePrefix(firstLine("production")))
		Expect(server.client.Get(ctx, managerKey(), &deployment)).To(Succeed())
		Expect(*deployment.Spec.Replicas).To(BeZero())
	})

	It("need no confirmation on the local control plane", func(ctx context.Context) {
		local := writeKubeconfig(localContext)
		Expect(succeeds(ctx, local, "install")).To(And(HavePrefix(firstLine(localContext)), Not(ContainSubstring(question))))
		Expect(crds(ctx)).To(HaveLen(5))
		succeeds(ctx, local, "uninstall")
		Expect(crds(ctx)).To(BeEmpty())
	})

	It("take ~/.kube/config without KUBECONFIG, as kubectl does", func(ctx context.Context) {
		home := GinkgoT().TempDir()
		Expect(os.Mkdir(filepath.Join(home, ".kube"), 0o700)).To(Succeed())
		Expect(os.Rename(writeKubeconfig("at-home"), filepath.Join(home, ".kube", "config"))).To(Succeed())
		command := target(ctx, "", "install")
		command.Env = append(command.Env[:len(command.Env)-1], "HOME="+home)
		out, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(HavePrefix(firstLine("at-home")))
	})
})

// managerKey is the name of the Deployment of the manager.
func managerKey() client.ObjectKey {
	return client.ObjectKey{Namespace: defaultNamespace, Name: "podops-controller-manager"}
}
