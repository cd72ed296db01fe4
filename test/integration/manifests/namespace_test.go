package manifests_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Manifests in another namespace", func() {
	// overlay renders a kustomization with a folder of config in the namespace shop-ops.
	overlay := func(ctx context.Context, base string) string {
		GinkgoHelper()
		folder := GinkgoT().TempDir()
		root, err := filepath.Abs(filepath.Join("..", "..", "..", "config", base))
		Expect(err).NotTo(HaveOccurred())
		relative, err := filepath.Rel(folder, root)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"),
			[]byte("namespace: shop-ops\nresources: ["+relative+"]\n"), 0o600)).To(Succeed())
		out, err := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", folder).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		return string(out)
	}

	DescribeTable("name that namespace everywhere", func(ctx context.Context, base string) {
		rendered := overlay(ctx, base)
		Expect(rendered).To(ContainSubstring("namespace: shop-ops"))
		Expect(rendered).NotTo(ContainSubstring("podops-system"))
	},
		Entry("as a default installation", "default"),
		Entry("with a manager outside of the cluster", "local"),
	)
})
