package e2e_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/podops-dev/podops/pkg/runtime/kubeversion"
)

var _ = Describe("The version of Kubernetes", Label(mainStories), func() {
	It("is the minimum in make test-versions, and a later one in the other suites", func() {
		info, err := suiteCluster.clientset.ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("version", info.GitVersion)
		Expect(kubeversion.Check(*info)).To(Succeed())
		Expect(strings.HasPrefix(info.GitVersion, "v"+kubeversion.Minimum+".")).To(Equal(controlPlaneFolder() != binFolder()), info.GitVersion)
	})

	It("below the minimum ends the manager with a refusal", func(ctx context.Context) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"major":"1","minor":"34","gitVersion":"v1.34.2"}`))
		}))
		DeferCleanup(server.Close)
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"old": {Server: server.URL}},
			Contexts:       map[string]*clientcmdapi.Context{"old": {Cluster: "old"}},
			CurrentContext: "old",
		}, kubeconfig)).To(Succeed())
		command := exec.CommandContext(ctx, requireProgram("manager"), "--kubeconfig", kubeconfig)
		output, err := command.CombinedOutput()
		Expect(command.ProcessState.ExitCode()).To(Equal(1), "%v", err)
		Expect(string(output)).To(HaveSuffix("manager: running: setting up the manager: Kubernetes v1.34.2 is not supported. PodOps needs 1.35 or later, since it " +
			"compares resourceVersions: no older version guarantees their order, and without it more pods could be unavailable than a rule permits. " +
			"Upgrade the control plane to 1.35 or later (docs/kubernetes-versions.md)\n"))
	})
})
