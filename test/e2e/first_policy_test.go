package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/test/docpage"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("docs/first-policy.md", func() {
	It("has steps that work, with the output that it shows", func(ctx context.Context) {
		p := newScenario(ctx)
		folder := GinkgoT().TempDir()
		kubeconfig, err := os.ReadFile(p.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, "kubeconfig"), kubeconfig, 0o600)).To(Succeed())
		shell := func(text string) string {
			GinkgoHelper()
			command := exec.CommandContext(ctx, "sh", "-ec", text)
			command.Dir = folder
			command.Env = append(os.Environ(), "KUBECONFIG=kubeconfig", "PATH="+filepath.Dir(requireProgram("kubectl-podops"))+":"+os.Getenv("PATH"))
			output, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			return string(output)
		}
		shell("kubectl config set-context --current --namespace=" + p.namespace)

		steps, err := docpage.Read(filepath.Join("..", "..", "docs", "first-policy.md"))
		Expect(err).NotTo(HaveOccurred())
		var shells []string
		for _, step := range steps {
			switch {
			case step.File != "":
				Expect(os.WriteFile(filepath.Join(folder, step.File), []byte(step.Text), 0o600)).To(Succeed())
			case step.Command != "":
				Expect(shell(step.Command)).To(Equal(step.Output), step.Command)
			default:
				shells = append(shells, step.Shell)
			}
		}
		Expect(shells).To(HaveLen(2))
		p.pods(ctx, 2, func(pod *corev1.Pod) {
			pod.Labels["app"], pod.Labels["author"], pod.Labels["reviewer"] = "payments", "ann", "ann"
		})
		pods := p.list(ctx)

		By("trying it out")
		Expect(strings.Count(shell(shells[0]), "payments/reviewed: would withhold it (DryRun)")).To(Equal(2))
		Expect(p.admin.Delete(ctx, pods[0])).To(Succeed())
		Eventually(ctx, p.list).Should(HaveLen(1))
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			g.Expect(p.kubectl(ctx, "--namespace", p.namespace, "get", "ptr", "payments", "-o", "jsonpath={.status.rules[0].wouldWithhold}")).To(Equal("1"))
		}).Should(Succeed())

		By("enforcing it")
		output := shell(shells[1])
		Expect(output).To(And(ContainSubstring(`"wouldWithhold":1`), ContainSubstring("payments/reviewed: withholds it")))
		Expect(p.evict(ctx, pods[1])).To(expect.BeRefused(429, "payments/reviewed"))
		Expect(p.list(ctx)).To(HaveLen(1))
	})
})
