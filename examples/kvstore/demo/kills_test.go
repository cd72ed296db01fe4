package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/test/stage"
)

// quietWindow is how long a steady cluster must get no write.
const quietWindow = 2 * time.Second

// leastPermits are the permits before the deletion: three pods are upgraded, the canary twice more, and a pod leaves.
const leastPermits = 6

// lastWrites is how many writes a failure reports.
const lastWrites = 40

// newShow returns a show that is open, without an operator, and ends with the test.
func newShow(t *testing.T) *show {
	t.Helper()
	bin := os.Getenv("PODOPS_BIN")
	if bin == "" {
		t.Fatal("PODOPS_BIN is the folder of the programs; make test-kvstore sets it")
	}
	ctrl.SetLogger(logr.Discard())
	t.Chdir(filepath.Join("..", "..", "..")) // of the manifests
	network := 100 + os.Getpid()%100
	dir := t.TempDir()
	s := &show{
		stage: stage.New(stage.Options{
			Bin: bin, Dir: dir, Out: t.Output(), CIDR: fmt.Sprintf("127.%d.0.0/16", network), ManagerFlags: managerFlags(),
		}),
		bin: bin, dir: dir, cidr: netip.MustParsePrefix(fmt.Sprintf("127.%d.128.0/17", network)), out: t.Output(), all: true, began: time.Now(),
	}
	t.Cleanup(func() {
		if err := s.stage.Down(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []func(context.Context) error{s.stage.Up, s.open} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// story is a part of the life of a cluster.
type story struct {
	name    string
	begin   func(context.Context) error
	reached func(*kvstorev1.KVStoreCluster) bool
}

// life returns the stories of a cluster, from its creation to its deletion.
func (s *show) life() []story {
	version := func(version string) func(context.Context) error {
		return func(ctx context.Context) error { return s.setVersion(ctx, version) }
	}
	return []story{
		{"creation", s.createSmall, isPhase(kvstorev1.PhaseReady, "1.0.0", 3)},
		{"canary upgrade", version("2.0.0"), isPhase(kvstorev1.PhaseReady, "2.0.0", 3)},
		{"upgrade that is rolled back", version("3.0.0-bad"), isPhase(kvstorev1.PhaseFailed, "2.0.0", 3)},
		{"return to the old version", version("2.0.0"), isPhase(kvstorev1.PhaseReady, "2.0.0", 3)},
		{"scale-in", func(ctx context.Context) error {
			return s.edit(ctx, func(c *kvstorev1.KVStoreCluster) { c.Spec.Replicas = 2 })
		}, isPhase(kvstorev1.PhaseReady, "2.0.0", 2)},
		{"deletion with a backup", func(ctx context.Context) error {
			return s.stage.Kubectl(ctx, "-n", s.namespace, "delete", "kvs", name, "--wait=false")
		}, func(c *kvstorev1.KVStoreCluster) bool { return c == nil }},
	}
}

// createSmall creates a cluster of three replicas under the rules of the sample.
func (s *show) createSmall(ctx context.Context) error {
	if err := s.applySample(ctx, sampleHook, sampleRules); err != nil {
		return err
	}
	return s.admin.Create(ctx, newCluster(s.namespace))
}

func newCluster(namespace string) *kvstorev1.KVStoreCluster {
	return &kvstorev1.KVStoreCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kvstorev1.KVStoreClusterSpec{
			Version: "1.0.0", Replicas: 3, UpgradeStrategy: kvstorev1.CanaryUpgradeStrategy,
			Storage: kvstorev1.StorageSpec{ClassName: "standard", Size: "1Gi"},
		},
	}
}

// TestTheOperatorIsKilledAtEachWrite kills the operator with SIGKILL at writes: before the API server has them
// and after it has carried them out, in turn. Each story ends as without that, and the store loses no
// acknowledged write. As in examples/kvstore/config/operator there are two replicas: the other does not lead, and serves the hook.
//
// With 1, every operator makes one write at most, so that every write of a story is the first of a new
// process, once lost and once unanswered. With more, rounds end between their writes.
func TestTheOperatorIsKilledAtEachWrite(t *testing.T) {
	s := newShow(t)
	if err := s.startStandby(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := newKiller(t, s)
	want := s.live(t, k, 0, nil)
	for _, every := range []int{1, 2, 3} {
		s.live(t, k, every, want)
	}
}

// live plays the life of a cluster in a namespace of its own. The operator is killed at each write whose number
// in its process is every; 0: never. It compares the end of each story with want, and returns them.
func (s *show) live(t *testing.T, k *killer, every int, want []end) (ends []end) {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	g.EnforceDefaultTimeoutsWhenUsingContexts()
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(polling)
	if err := s.newNamespace(ctx, fmt.Sprintf("killed-every-%d", every)); err != nil {
		t.Fatal(err)
	}
	permits, err := s.recordPermits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	k.disarm()
	k.start(ctx, t)
	for i, story := range s.life() {
		began := time.Now()
		if i == 1 {
			g.Expect(s.startLoad()).To(Succeed())
		}
		if s.load != nil && i == len(s.life())-1 {
			report, err := s.endLoad()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.LostWrites+report.RepeatedWrites).To(BeZero(), "%+v", report)
			g.Expect(report.Writes.Failed+report.Reads.Failed).To(BeZero(), "%+v", report)
			g.Expect(min(report.Writes.Succeeded, report.Reads.Succeeded)).To(BeNumerically(">", 0), "%+v", report)
			g.Expect(report.Linearizable).To(Equal("Ok"))
			t.Logf("every %d: %d writes and %d reads of the store, none lost or failed", every, report.Writes.Succeeded, report.Reads.Succeeded)
			seen := permits.end()
			g.Expect(len(seen)).To(BeNumerically(">=", leastPermits))
			g.Expect(s.checkPermits(seen)).To(Succeed())
		}
		k.arm(killEvery(every))
		g.Expect(story.begin(ctx)).To(Succeed())
		g.Eventually(ctx, func(g Gomega) {
			got, err := s.end(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			if want != nil {
				g.Expect(got).To(BeComparableTo(want[i]))
			} else {
				cluster, err := s.read(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(story.reached(cluster)).To(BeTrue(), "%+v", cluster)
				g.Expect(got.Gone || got.Leaders == 1).To(BeTrue(), "%+v", got)
				// The phase of the cluster is not the last write of a story.
				g.Consistently(ctx, s.end).WithTimeout(quietWindow).Should(BeComparableTo(got))
			}
		}).Should(Succeed(), func() string {
			writes, kills, err := k.count()
			last := writes[max(0, len(writes)-lastWrites):]
			return fmt.Sprintf("every %d: %s: %d kills, operator %v, the last writes: %s", every, story.name, kills, err, strings.Join(last, "\n"))
		})
		writes, kills, err := k.count()
		g.Expect(err).NotTo(HaveOccurred())
		t.Logf("every %d: %s: %d writes, %d kills, %.1f s", every, story.name, len(writes), kills, time.Since(began).Seconds())
		if every > 0 {
			g.Expect(kills).To(BeNumerically(">=", len(writes)/every-1))
		}
		k.disarm()
		if every > 0 {
			k.start(ctx, t)
			g.Consistently(ctx, func() ([]string, error) {
				writes, _, err := k.count()
				return writes, err
			}).WithTimeout(quietWindow).Should(BeEmpty(), "writes of an operator that finds the end of a story")
		}
		got, err := s.end(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		ends = append(ends, got)
	}
	return ends
}

// read returns the cluster; nil if it is gone.
func (s *show) read(ctx context.Context) (*kvstorev1.KVStoreCluster, error) {
	cluster := &kvstorev1.KVStoreCluster{}
	err := s.admin.Get(ctx, s.key(), cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, err
}

// killEvery kills the operator at the write whose number in its process is n, before and after it in turn.
func killEvery(n int) func(own, total int) fate {
	next := killAfter
	return func(own, _ int) fate {
		if n == 0 || own < n {
			return answered
		}
		if next = killBefore + killAfter - next; next == killBefore {
			return killBefore
		}
		return killAfter
	}
}
