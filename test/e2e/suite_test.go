// Package e2e_test tells whole stories on the local control plane: a real API server
// with the manifests applied, simulated kubelets that may do what kubelets may do, and
// the manager as a process with the rights of its ServiceAccount.
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
)

const (
	// patience is how long a condition is waited for that comes within a second or two
	// on an idle machine.
	patience = 45 * time.Second

	// polling is how often a condition is looked at.
	polling = 100 * time.Millisecond

	// callStories is the label of the stories about webhook rules, half of the time of all.
	// Stories wait more than they compute, so `make test-e2e` tells the two halves at once,
	// each on a cluster of its own.
	callStories = "calls"

	// holdWindow is how long something is watched that must not happen.
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

// world is the cluster under test.
var world *cluster

// managers are the processes that run at the moment, or have run.
var managers *fleet

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	world = startCluster(ctx)
	managers = newFleet(world)
	managers.start(ctx)
})

// failed: some story has.
var failed bool

var _ = ReportAfterEach(func(report SpecReport) {
	failed = failed || report.Failed()
	if report.Failed() && managers != nil {
		AddReportEntry("the managers' last words", managers.tails())
	}
})

// requireProgram returns the path of a program of the repository's bin folder.
func requireProgram(name string) string {
	GinkgoHelper()
	path := filepath.Join(binFolder(), name)
	_, err := os.Stat(path)
	Expect(err).NotTo(HaveOccurred(), "`make kube build` builds what the end-to-end tests run")
	return path
}

// binFolder is where the programs are: $PODOPS_BIN, or bin/ of the repository.
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
