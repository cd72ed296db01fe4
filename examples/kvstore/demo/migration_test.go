package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// TestAnUpgradeBeginsWithItsMigration requests a schema that no version knows, and withdraws it while no operator runs.
func TestAnUpgradeBeginsWithItsMigration(t *testing.T) {
	s := newShow(t)
	g := NewWithT(t)
	g.Expect(s.startOperator(t.Context())).To(Succeed())
	g.Expect(s.newNamespace(t.Context(), "migrated")).To(Succeed())
	g.Expect(s.createSmall(t.Context())).To(Succeed())
	g.Expect(s.await(t.Context(), "the cluster is ready", isPhase(kvstorev1.PhaseReady, "1.0.0", 3))).To(Succeed())
	before := s.pods(t)

	request := func(schema int32) {
		g.Expect(s.edit(t.Context(), func(c *kvstorev1.KVStoreCluster) { c.Spec.Version, c.Spec.SchemaVersion = "2.0.0", schema })).To(Succeed())
	}
	request(1000)
	g.Expect(s.await(t.Context(), "the migration fails", func(c *kvstorev1.KVStoreCluster) bool {
		migrated := meta.FindStatusCondition(c.Status.Conditions, kvstorev1.ConditionSchemaMigrated)
		return migrated != nil && migrated.Reason == kvstorev1.ReasonMigrationFailing && strings.Contains(migrated.Message, "to version 1000 has failed: Job ") &&
			c.Status.Phase == kvstorev1.PhaseUpgrading && c.Status.Upgrade == nil
	})).To(Succeed())
	g.Expect(s.pods(t)).To(Equal(before), "no pod is replaced")
	s.operator.Kill()
	request(1)
	g.Expect(s.startOperator(t.Context())).To(Succeed())
	g.Expect(s.await(t.Context(), "version 2.0.0 on every pod", isPhase(kvstorev1.PhaseReady, "2.0.0", 3))).To(Succeed())

	cluster, err := s.read(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster.Status.SchemaVersion).To(BeEquivalentTo(1))
	g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, kvstorev1.ConditionSchemaMigrated)).To(BeTrue())
	var jobs batchv1.JobList
	g.Expect(s.admin.List(t.Context(), &jobs, client.InNamespace(s.namespace),
		client.MatchingLabels{kvstorev1.ComponentLabelKey: kvstorev1.ComponentMigration})).To(Succeed())
	var succeeded []batchv1.Job
	for i := range jobs.Items {
		if jobs.Items[i].Status.Succeeded > 0 {
			succeeded = append(succeeded, jobs.Items[i])
		}
	}
	g.Expect(succeeded).To(HaveLen(1), "Jobs that migrated")
	for name, pod := range s.pods(t) {
		g.Expect(pod.UID).NotTo(Equal(before[name].UID))
		g.Expect(pod.CreationTimestamp.Time).NotTo(BeTemporally("<", succeeded[0].Status.CompletionTime.Time), "%s is created after the migration", name)
	}
}

// pods returns the members by name, without what changes while they run.
func (s *show) pods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	var list corev1.PodList
	err := s.admin.List(t.Context(), &list, client.InNamespace(s.namespace), client.MatchingLabels{kvstorev1.ComponentLabelKey: kvstorev1.ComponentMember})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		stays := corev1.Pod{}
		stays.UID, stays.CreationTimestamp = pod.UID, pod.CreationTimestamp
		pods[pod.Name] = stays
	}
	return pods
}
