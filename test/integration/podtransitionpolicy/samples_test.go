package podtransitionpolicy_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tools that deploy from Git dry-run every manifest on the server before they apply the
// first one: each must pass alone, a rule before its policy too.
var _ = Describe("Every sample", func() {
	It("passes a dry run on the server", func(ctx context.Context) {
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, adminKubeconfig, 0o600)).To(Succeed())
		installation := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "podops-system"}}
		Expect(admin.Create(ctx, installation)).To(Succeed())
		seen := 0
		samples := filepath.Join("..", "..", "..", "config", "samples")
		Expect(filepath.WalkDir(samples, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
				return err
			}
			for _, arguments := range [][]string{{}, {"--server-side"}} {
				arguments = append([]string{"--kubeconfig", kubeconfig, "apply", "--dry-run=server", "-f", path}, arguments...)
				output, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), arguments...).CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s: %s", path, output)
			}
			seen++
			return nil
		})).To(Succeed())
		Expect(seen).To(BeNumerically(">=", 10))
	})
})
