// Package upgrade_test upgrades PodOps from its previous release, kills its leaders, and goes back, on a
// local control plane with two replicas of the manager behind a Service, while pods are operated on in every way:
//
//	the load     rollouts, updates in place, scale-ins and approvals, in rounds without end
//	in flight    a pod in each state of a lifecycle, deferred deletes and evictions, a scale-down that is
//	             kept, a call that is polled, a PodOperation: they stay as they are until they are released
//	probes       dry runs that webhooks review; their durations are printed
//
// A watch of its own and the audit log of the API server show what happened to pods and requests.
package upgrade_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/observed"
	"github.com/podops-dev/podops/test/stage"
)

const (
	// patience bounds every wait for a condition.
	patience = 2 * time.Minute

	// polling is the polling interval of conditions.
	polling = 100 * time.Millisecond

	// placeholder is the address of webhooks in config/local.
	placeholder = "https://127.0.0.1:9443"
)

func TestUpgrade(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Upgrade")
}

// release is a version of PodOps.
type release struct {
	name    string
	manager string // program
	config  string // folder of its manifests
}

// system is a cluster in which PodOps runs.
type system struct {
	*stage.Stage
	scheme            *runtime.Scheme
	admin             client.WithWatch
	audit             *audit.Log
	previous, current release
	phases            *phases
	pods              *podWatch
	replicas          *replicas
	approvals         *approvals.Service
	approvalURL       func(path string) string
}

var upgraded *system

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	bin, before := os.Getenv("PODOPS_BIN"), os.Getenv("PODOPS_PREVIOUS")
	Expect(bin).NotTo(BeEmpty(), "PODOPS_BIN must name the folder with the programs; `make test-upgrade` sets it")
	Expect(before).NotTo(BeEmpty(), "PODOPS_PREVIOUS must name the folder of the previous release; `make test-upgrade` sets it")
	root, err := filepath.Abs(filepath.Join("..", ".."))
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "podops-upgrade-")
	Expect(err).NotTo(HaveOccurred())
	s := &system{
		Stage:    stage.New(stage.Options{Bin: bin, Dir: dir, Out: GinkgoWriter}),
		scheme:   runtime.NewScheme(),
		previous: release{"previous", filepath.Join(before, "manager"), filepath.Join(before, "config")},
		current:  release{"current", filepath.Join(bin, "manager"), filepath.Join(root, "config")},
		phases:   &phases{},
	}
	DeferCleanup(func() {
		Expect(s.Down()).To(Succeed())
		if CurrentSpecReport().Failed() || failed {
			fmt.Fprintln(os.Stderr, "logs are kept in", dir)
			return
		}
		Expect(os.RemoveAll(dir)).To(Succeed())
	})
	Expect(s.UpControlPlane(ctx)).To(Succeed())
	Expect(clientgoscheme.AddToScheme(s.scheme)).To(Succeed())
	Expect(appsv1alpha1.AddToScheme(s.scheme)).To(Succeed())
	s.admin, err = client.NewWithWatch(s.Config(), client.Options{Scheme: s.scheme})
	Expect(err).NotTo(HaveOccurred())
	s.audit, err = audit.Open(s.AuditLog())
	Expect(err).NotTo(HaveOccurred())

	s.approvals = approvals.New(nil)
	server, err := approvals.Serve(s.approvals, approvals.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		// A manager may keep a connection open that it never uses.
		ctx, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		Expect(server.Close(ctx)).To(Succeed())
	})
	s.approvalURL = server.URL
	s.replicas = openReplicas(s)
	s.pods = watchPods(s)
	upgraded = s
})

// failed is true after a step has failed.
var failed bool

var _ = ReportAfterEach(func(report SpecReport) {
	failed = failed || report.Failed()
	if report.Failed() && upgraded != nil {
		AddReportEntry("the ends of the managers' logs", upgraded.replicas.tails())
	}
})

// install applies the manifests of a release, as `kubectl apply --server-side --force-conflicts -k` does, with the
// address of the Service of the replicas, and returns once the API server applies the webhook configurations.
func (s *system) install(ctx context.Context, r release) {
	GinkgoHelper()
	Expect(s.apply(ctx, r, "--force-conflicts")).To(Succeed())
	Expect(observed.WebhookConfigurations(ctx, s.admin)).To(Succeed())
}

// apply applies the manifests of a release with flags of kubectl apply.
func (s *system) apply(ctx context.Context, r release, flags ...string) error {
	GinkgoHelper()
	manifests, err := s.KubectlOutput(ctx, "kustomize", filepath.Join(r.config, "local"))
	Expect(err).NotTo(HaveOccurred())
	Expect(manifests).To(ContainSubstring(placeholder))
	manifests = strings.ReplaceAll(manifests, placeholder, s.replicas.service.URL())
	return s.KubectlWith(ctx, manifests, append([]string{"apply", "--server-side", "-f", "-"}, flags...)...)
}
