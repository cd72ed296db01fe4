// Package e2e_test runs scenarios on the local control plane: a real API server with the
// manifests applied, simulated kubelets that do only what kubelets may do, and the manager
// as a process with the rights of its ServiceAccount.
package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience is the timeout of conditions that hold within a second or two on an idle
	// machine.
	patience = 45 * time.Second

	// polling is the polling interval of conditions.
	polling = 100 * time.Millisecond

	// callStories is the label of the scenarios of webhook rules.
	callStories = "calls"

	// mainStories is the label of the scenarios that also run on the oldest version of Kubernetes: make test-versions.
	mainStories = "main"

	// longStories is the label of the scenarios that take minutes: make test-long.
	longStories = "long"

	// holdWindow is how long a scenario checks that something does not happen.
	holdWindow = 2 * time.Second
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	SetDefaultConsistentlyDuration(holdWindow)
	SetDefaultConsistentlyPollingInterval(polling)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "End to end")
}

// suiteCluster is the cluster under test.
var suiteCluster *cluster

// managers holds the manager processes that run or have run.
var managers *managerSet

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	suiteCluster = startCluster(ctx)
	managers = newManagerSet(suiteCluster)
	managers.start(ctx)
	// The API server loads admission policies a moment after they are stored.
	Eventually(ctx, func(ctx context.Context) error {
		return suiteCluster.admin.Create(ctx, decision(scenario{suiteCluster, "default"}, "bob"), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("spec.approver must be the user who creates the approval")))
})

// failed is true after a scenario has failed.
var failed bool

var _ = ReportAfterEach(func(report SpecReport) {
	failed = failed || report.Failed()
	if report.Failed() && managers != nil {
		AddReportEntry("the ends of the managers' logs", managers.tails())
	}
})

// requireProgram returns the path of a program of the repository's bin folder.
func requireProgram(name string) string {
	GinkgoHelper()
	path := filepath.Join(binFolder(), name)
	_, err := os.Stat(path)
	Expect(err).NotTo(HaveOccurred(), "`make kube build` builds the programs of the end-to-end tests")
	return path
}

// controlPlaneFolder returns the folder of the control plane: $PODOPS_CONTROLPLANE for another version of Kubernetes, or
// that of the programs.
func controlPlaneFolder() string {
	if folder := os.Getenv("PODOPS_CONTROLPLANE"); folder != "" {
		return folder
	}
	return binFolder()
}

// binFolder returns the folder of the programs: $PODOPS_BIN, or bin/ of the repository.
func binFolder() string {
	GinkgoHelper()
	folder := os.Getenv("PODOPS_BIN")
	if folder == "" {
		folder = filepath.Join("..", "..", "bin")
	}
	absolute, err := filepath.Abs(folder)
	Expect(err).NotTo(HaveOccurred())
	return absolute
}
