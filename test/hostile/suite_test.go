// Package hostile_test attacks a manager that runs in the memory limit of its Deployment,
// with requests of a user who can edit one namespace, or reach the webhook port. Meanwhile
// another namespace operates on its pods, and its waits are measured.
package hostile_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/memlimit"
	"github.com/podops-dev/podops/test/stage"
)

const (
	// memoryLimit is that of config/manager/deployment.yaml.
	memoryLimit = 1 << 30

	// attackTime is how long an attack lasts.
	attackTime = 20 * time.Second

	// allowedRatio is how many times longer than undisturbed a neighbour's permit may take.
	allowedRatio = 3
)

// timed makes the suite fail on slow neighbours. Without it their times are printed: they
// depend on the load of the machine.
var timed = flag.Bool("timed", false, "fail when an attack makes permits of another namespace more than 3 times slower")

func TestHostile(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "Hostile tenants")
}

// target is the cluster under attack.
type target struct {
	*stage.Stage
	group   *memlimit.Group
	metrics string // address
	scheme  *runtime.Scheme
	admin   client.WithWatch
	quiet   *neighbour
	before  times // of the neighbour, undisturbed
}

var attacked *target

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	group, err := memlimit.New(fmt.Sprintf("podops-hostile-%d", os.Getpid()), memoryLimit)
	if errors.Is(err, memlimit.ErrUnavailable) {
		// Visible in the output of every run: without a limit these tests show nothing.
		fmt.Fprintf(os.Stderr, "\n*** SKIPPED: test/hostile attacks a manager in a memory limit of 1 GiB, and: %v ***\n\n", err)
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(group.Close)

	bin := os.Getenv("PODOPS_BIN")
	Expect(bin).NotTo(BeEmpty(), "PODOPS_BIN must name the folder with the programs; `make test-hostile` sets it")
	dir, err := os.MkdirTemp("", "podops-hostile-")
	Expect(err).NotTo(HaveOccurred())
	root, err := filepath.Abs(filepath.Join("..", ".."))
	Expect(err).NotTo(HaveOccurred())
	f := &target{group: group, metrics: freeAddress(), scheme: runtime.NewScheme()}
	f.Stage = stage.New(stage.Options{
		Bin: bin, Dir: dir, Out: GinkgoWriter, Manifests: filepath.Join(root, "config", "local"),
		ManagerFlags:   []string{"--settle-time", "0s", "--permit-interval", "0s"},
		MetricsAddress: f.metrics, WrapManager: behind(group),
	})
	DeferCleanup(func() error { return errors.Join(f.Down(), os.RemoveAll(dir)) })
	Expect(f.Up(ctx)).To(Succeed())
	Expect(clientgoscheme.AddToScheme(f.scheme)).To(Succeed())
	Expect(appsv1alpha1.AddToScheme(f.scheme)).To(Succeed())
	f.admin = f.as("", nil)
	f.quiet = newNeighbour(ctx, f)

	By("measuring the neighbour undisturbed")
	f.before = f.quiet.work(ctx, attackTime)
	attacked = f
	fmt.Fprintf(os.Stderr, "undisturbed: %s\n", f.before)
})

// behind runs the manager in the group, with lower CPU priority than the control plane: in
// a cluster these have machines of their own.
func behind(group *memlimit.Group) func(...string) []string {
	return func(command ...string) []string {
		return group.Command(append([]string{"nice", "-n", "5"}, command...)...)
	}
}

// as returns a client with another identity; the administrator's when user is empty.
func (f *target) as(user string, groups []string) client.WithWatch {
	GinkgoHelper()
	config := rest.CopyConfig(f.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.NewWithWatch(config, client.Options{Scheme: f.scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// survives runs an attack while the neighbour works, and checks the guarantees of
// docs/security.md: no restart, memory below the limit, every lifecycle of the neighbour
// continues.
func (f *target) survives(ctx context.Context, attack string, namespaces ...string) {
	GinkgoHelper()
	f.withstands(ctx, attack, f.before, f.start(ctx, order{Attack: attack, Namespaces: namespaces}))
}

// withstands does the same for a running attack, compared with the times of the neighbour
// without it. wait ends with the attack, and returns the number of requests that it sent.
func (f *target) withstands(ctx context.Context, attack string, without times, wait func() string) {
	GinkgoHelper()
	during := f.quiet.work(ctx, attackTime)
	sent := wait()

	select {
	case <-f.ManagerEnded():
		Fail(fmt.Sprintf("the manager ended: %v", f.ManagerError()))
	default:
	}
	kills, err := f.group.Kills()
	Expect(err).NotTo(HaveOccurred())
	Expect(kills).To(BeZero(), "processes killed because of the memory limit")
	peak, err := f.group.Peak()
	Expect(err).NotTo(HaveOccurred())
	fmt.Fprintf(os.Stderr, "%s, %s requests: %s, memory at most %d MiB, permit p99 %.1fx the p99 without\n",
		attack, sent, during, peak>>20, during.permit.ratio(without.permit))
	Expect(during.permit.count()).To(BeNumerically(">", 0), "the neighbour got no permit")
	if *timed {
		Expect(during.permit.ratio(without.permit)).To(BeNumerically("<=", allowedRatio), "p99 of the neighbour's permits, against the p99 without the attack")
	}
}

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}

// restart starts the manager again when the attack before has ended it.
func (f *target) restart(ctx context.Context) {
	GinkgoHelper()
	select {
	case <-f.ManagerEnded():
		Expect(f.StartManager(ctx)).To(Succeed())
	default:
	}
}
