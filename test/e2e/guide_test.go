package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
	"github.com/podops-dev/podops/test/samples"
)

// startGuide builds the controllers of the developer's guide and runs them in the namespace of the scenario.
func (p scenario) startGuide(ctx context.Context) *gexec.Session {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	Expect(err).NotTo(HaveOccurred())
	_, err = samples.WriteModule(dir, root)
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(dir, "guide")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd")
	build.Dir, build.Env = dir, samples.Environment()
	output, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))

	command := exec.Command(program, p.namespace)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	session, err := gexec.Start(command, nil, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Eventually(ctx, session.Signal(syscall.SIGTERM)).Should(gexec.Exit(0))
	})
	return session
}

var _ = Describe("The developer's guide of PodOpsLifecycle", func() {
	It("has controllers that operate on a pod with its traffic off", func(ctx context.Context) {
		const name, finalizer = "web", "prot.podopslifecycle.kusionstack.io/unique-id"
		p := newScenario(ctx)
		traffic := p.startGuide(ctx).Out
		p.pod(ctx, name, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{appsv1alpha1.PodAvailableConditionsAnnotation: `{"expectedFinalizers":{"Guide/e2e/web":"` + finalizer + `"}}`}
		})
		Eventually(ctx, p.seeing(name)).Should(expect.BeAvailable())
		pod := p.get(ctx, name)
		Expect(pod.Finalizers).To(ContainElement(finalizer))
		Eventually(ctx, traffic).Should(gbytes.Say("^on " + pod.Status.PodIP + "\n"))

		p.annotate(ctx, pod, "example.com/operate", "first")
		Eventually(ctx, p.seeing(name)).Should(And(
			HaveField("Annotations", HaveKeyWithValue("example.com/operated", "first")), expect.HaveNoLifecycle(), expect.BeAvailable()))
		Expect(p.get(ctx, name).UID).To(Equal(pod.UID))
		Eventually(ctx, traffic).Should(gbytes.Say("^off " + pod.Status.PodIP + "\non " + pod.Status.PodIP + "\n$"))
	})
})
