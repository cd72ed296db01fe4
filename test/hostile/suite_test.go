// Package hostile_test attacks a manager that runs in the memory limit of its Deployment,
// with requests of a user who can edit one namespace, or reach the webhook port. Meanwhile
// another namespace, the neighbour, operates on its pods, and its waits are measured.
//
// The check with -timed compares the p99 of the waits during an attack with the p99 without it:
//
//   - The neighbour works undisturbed directly before and directly after each attack, and both times
//     together are the waits without it. So a machine that becomes slower or faster during the suite
//     changes both sides. Each side has 150 waits or more on an idle machine, so that its p99 is
//     not its maximum.
//   - An attack leaves nothing behind: its namespaces are removed before the neighbour works
//     undisturbed again. Otherwise each attack would be measured on top of the attacks before
//     it, and compared with a manager that has none of them.
//   - The control plane has priority over the manager, and attackers come last. In a cluster each
//     has CPUs of its own, while here an attacker's own computation would delay the neighbour, and
//     the result would describe the machine and not the manager. Niceness alone does not achieve
//     that: the kernel divides CPU time between sessions first (outranked).
//   - Where the suite may, it has priority over the rest of the machine (outrankMachine).
//   - The API server needs CPU time for every attack with requests to it, which no manager can
//     prevent. This is part of the waits, with one exception: objects that the API server decodes and
//     rejects itself are compared with equally large objects of a kind without a webhook.
package hostile_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/managerprocess"
	"github.com/podops-dev/podops/test/memlimit"
	"github.com/podops-dev/podops/test/stage"
)

const (
	// memoryLimit is that of config/manager/deployment.yaml.
	memoryLimit = 1 << 30

	// attackTime is how long an attack lasts.
	attackTime = 20 * time.Second

	// quietTime is how long the neighbour works undisturbed before and after an attack.
	quietTime = 12 * time.Second

	// allowedRatio is how many times longer than undisturbed the p99 of a neighbour's waits may be.
	allowedRatio = 3
)

// timed makes the suite fail on slow neighbours. Without it their times are printed: they
// depend on the load of the machine.
var timed = flag.Bool("timed", false, "fail when an attack makes permits, admission or deferred deletes of another namespace more than 3 times slower")

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

	// undisturbed are the times of the neighbour after the last attack.
	undisturbed times
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

	if leave, err := outrankMachine(); err != nil {
		fmt.Fprintf(os.Stderr, "\n*** The times depend on the load of the machine: %v ***\n\n", err)
	} else {
		DeferCleanup(leave)
	}

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
	f.undisturbed = f.quiet.work(ctx, quietTime)
	attacked = f
})

// behind runs the manager in the group, with lower CPU priority than the control plane.
func behind(group *memlimit.Group) func(...string) []string {
	return func(command ...string) []string {
		return group.Command(outranked(5, command...)...)
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
	f.withstands(ctx, attack, f.start(ctx, order{Attack: attack, Namespaces: namespaces}), namespaces...)
}

// withstands does the same for a running attack on namespaces. wait ends with the attack, and
// returns the number of requests that it sent.
func (f *target) withstands(ctx context.Context, attack string, wait func() string, namespaces ...string) {
	GinkgoHelper()
	during := f.quiet.work(ctx, attackTime)
	sent := wait()
	f.expectAlive()
	f.remove(ctx, namespaces...)
	before := f.undisturbed
	f.undisturbed = f.quiet.work(ctx, quietTime)
	f.compare(attack, sent, before.and(f.undisturbed), during)
}

// compare prints the times of the neighbour during an attack and without it, and compares them.
func (f *target) compare(attack, sent string, without, during times) {
	GinkgoHelper()
	var slow []string
	peak, err := f.group.Peak()
	Expect(err).NotTo(HaveOccurred())
	fmt.Fprintf(os.Stderr, "%s, %s requests, memory at most %d MiB\n", attack, sent, peak>>20)
	all := without.each()
	for i, kind := range during.each() {
		ratio := kind.ratio(all[i].series)
		fmt.Fprintf(os.Stderr, "  %-17s p99 %.1fx: %s; without: %s\n", kind.name, ratio, kind.series, all[i].series)
		Expect(kind.count()).To(BeNumerically(">", 0), "the neighbour has no %s", kind.name)
		if *timed && ratio > allowedRatio {
			slow = append(slow, fmt.Sprintf("%s: %.1fx", kind.name, ratio))
		}
	}
	Expect(slow).To(BeEmpty(), "p99 of the neighbour's waits, against the p99 without the attack")
}

// expectAlive fails when the manager ended or a process of it was killed.
func (f *target) expectAlive() {
	GinkgoHelper()
	select {
	case <-f.ManagerEnded():
		Fail(fmt.Sprintf("the manager ended: %v", f.ManagerError()))
	default:
	}
	kills, err := f.group.Kills()
	Expect(err).NotTo(HaveOccurred())
	Expect(kills).To(BeZero(), "processes killed because of the memory limit")
}

// remove deletes the namespaces of an attack, so that the next one does not add to it.
func (f *target) remove(ctx context.Context, namespaces ...string) {
	GinkgoHelper()
	for _, name := range namespaces {
		Expect(f.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	for _, name := range namespaces {
		Eventually(ctx, func() error { return f.admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}) }).
			Should(Satisfy(apierrors.IsNotFound), "namespace %s", name)
	}
}

func freeAddress() string {
	GinkgoHelper()
	address, err := managerprocess.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return address
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
