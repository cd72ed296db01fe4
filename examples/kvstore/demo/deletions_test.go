package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// TestADeletionBeginsWithItsBackup deletes clusters in every way that a client has.
func TestADeletionBeginsWithItsBackup(t *testing.T) {
	s := newShow(t)
	s.awaitGarbageCollector(t)
	if err := s.startOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		way    string
		delete func(*GomegaWithT)

		// backups is the number of backups, and created is how many objects but Jobs are created after the delete at most: once the
		// Service, the StatefulSet and its pods, where the garbage collector is faster than the operator.
		backups, created int
	}{
		{way: "foreground", backups: 1, created: 5, delete: func(g *GomegaWithT) {
			s.backups.setDown(true)
			g.Expect(s.deleteCluster(t.Context(), "--cascade=foreground")).To(Succeed())
			g.Expect(s.await(t.Context(), "the backup has failed twice", func(c *kvstorev1.KVStoreCluster) bool {
				return c.Status.BackupFailures == 2
			})).To(Succeed())
			s.backups.setDown(false)
		}},
		{way: "foreground-without-operator", backups: 1, created: 5, delete: func(g *GomegaWithT) {
			s.operator.Kill()
			g.Expect(s.deleteCluster(t.Context(), "--cascade=foreground")).To(Succeed())
			g.Eventually(t.Context(), func() bool {
				set := &appsv1.StatefulSet{}
				err := s.admin.Get(t.Context(), s.key(), set)
				return apierrors.IsNotFound(err) || err == nil && set.DeletionTimestamp != nil
			}, patience).Should(BeTrue(), "the garbage collector deletes the StatefulSet")
			g.Expect(s.startOperator(t.Context())).To(Succeed())
		}},
		{way: "quota", backups: 1, delete: func(g *GomegaWithT) {
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "jobs"}}
			quota.Spec.Hard = corev1.ResourceList{"count/jobs.batch": {}}
			g.Expect(s.admin.Create(t.Context(), quota)).To(Succeed())
			g.Eventually(t.Context(), func() (corev1.ResourceList, error) {
				err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
				return quota.Status.Hard, err
			}, patience).ShouldNot(BeEmpty())
			g.Expect(s.deleteCluster(t.Context())).To(Succeed())
			g.Expect(s.await(t.Context(), "the conditions have the error", func(c *kvstorev1.KVStoreCluster) bool {
				backedUp := meta.FindStatusCondition(c.Status.Conditions, kvstorev1.ConditionBackedUp)
				return backedUp != nil && backedUp.Reason == kvstorev1.ReasonStepFailed && strings.Contains(backedUp.Message, "exceeded quota")
			})).To(Succeed())
			g.Expect(s.admin.Delete(t.Context(), quota)).To(Succeed())
		}},
		{way: "namespace", delete: func(g *GomegaWithT) {
			g.Expect(s.stage.Kubectl(t.Context(), "delete", "namespace", s.namespace, "--wait=false")).To(Succeed())
		}},
	} {
		if !t.Run(one.way, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(s.newNamespace(t.Context(), "deleted-"+one.way)).To(Succeed())
			g.Expect(s.createSmall(t.Context())).To(Succeed())
			g.Expect(s.await(t.Context(), "the cluster is ready", isPhase(kvstorev1.PhaseReady, "1.0.0", 3))).To(Succeed())
			before, _ := s.backups.bytes()
			seen := s.observe(t)
			one.delete(g)
			g.Expect(s.await(t.Context(), "the cluster is gone", func(c *kvstorev1.KVStoreCluster) bool { return c == nil })).To(Succeed())
			g.Eventually(t.Context(), func() (int, error) { return s.count(t.Context(), &corev1.PersistentVolumeClaimList{}) }, patience).Should(BeZero())
			after, _ := s.backups.bytes()
			g.Expect(after-before).To(Equal(one.backups), "backups")
			created, reasons := seen()
			t.Logf("created after the delete: %s; BackedUp: %s", strings.Join(created, ", "), strings.Join(reasons, ", "))
			isJob := func(object string) bool { return strings.HasPrefix(object, "*v1.Job ") }
			g.Expect(len(slices.DeleteFunc(slices.Clone(created), isJob))).To(BeNumerically("<=", one.created), "objects that are created")
			jobs := slices.DeleteFunc(created, func(object string) bool { return !isJob(object) })
			g.Expect(slices.Compact(slices.Sorted(slices.Values(jobs)))).To(HaveLen(len(jobs)), "no Job is created twice")
			if one.backups == 0 {
				g.Expect(reasons).To(ContainElement(kvstorev1.ReasonBackupImpossible))
				g.Eventually(t.Context(), func() error {
					return s.admin.Get(t.Context(), types.NamespacedName{Name: s.namespace}, &corev1.Namespace{})
				}, patience).Should(Satisfy(apierrors.IsNotFound), "the namespace is gone")
			}
		}) {
			return
		}
	}
}

// awaitGarbageCollector waits until the garbage collector knows KVStoreClusters: it looks for new kinds twice a minute.
func (s *show) awaitGarbageCollector(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(s.newNamespace(t.Context(), "collected")).To(Succeed())
	cluster := newCluster(s.namespace)
	g.Expect(s.admin.Create(t.Context(), cluster)).To(Succeed())
	g.Expect(s.deleteCluster(t.Context(), "--cascade=foreground")).To(Succeed())
	g.Eventually(t.Context(), func() error { return s.admin.Get(t.Context(), s.key(), cluster) }, patience).Should(Satisfy(apierrors.IsNotFound))
}

// deleteCluster deletes the cluster with flags of kubectl.
func (s *show) deleteCluster(ctx context.Context, flags ...string) error {
	return s.stage.Kubectl(ctx, append([]string{"-n", s.namespace, "delete", "kvs", name, "--wait=false"}, flags...)...)
}

// observe watches the namespace. The result returns the Services, StatefulSets, Jobs and members that were created since, and the
// reasons of the condition BackedUp in their order.
func (s *show) observe(t *testing.T) func() (created, reasons []string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(stop)
	var (
		mu               sync.Mutex // guards the slices
		created, reasons []string
	)
	follow := func(list client.ObjectList, seen func(watch.Event)) {
		if err := s.admin.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			t.Fatal(err)
		}
		watcher, err := s.admin.Watch(ctx, list, client.InNamespace(s.namespace), &client.ListOptions{
			Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for event := range watcher.ResultChan() {
				mu.Lock()
				seen(event)
				mu.Unlock()
			}
		}()
		t.Cleanup(watcher.Stop)
	}
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &appsv1.StatefulSetList{}, &batchv1.JobList{}, &corev1.PodList{}} {
		follow(list, func(event watch.Event) {
			object, ok := event.Object.(client.Object)
			if ok && event.Type == watch.Added && !strings.Contains(object.GetGenerateName(), "-backup-") {
				created = append(created, fmt.Sprintf("%T %s", object, object.GetName()))
			}
		})
	}
	follow(&kvstorev1.KVStoreClusterList{}, func(event watch.Event) {
		cluster, ok := event.Object.(*kvstorev1.KVStoreCluster)
		if !ok {
			return
		}
		backedUp := meta.FindStatusCondition(cluster.Status.Conditions, kvstorev1.ConditionBackedUp)
		if backedUp != nil && (len(reasons) == 0 || reasons[len(reasons)-1] != backedUp.Reason) {
			reasons = append(reasons, backedUp.Reason)
		}
	})
	return func() ([]string, []string) {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(created), slices.Clone(reasons)
	}
}
