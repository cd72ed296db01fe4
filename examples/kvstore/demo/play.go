package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

const (
	patience = 3 * time.Minute
	polling  = 100 * time.Millisecond
)

// act is a part of the play. Its error reports that it has not ended as it must.
type act struct {
	name string
	play func(context.Context) error
}

// acts returns the parts of the play in their order.
func (s *show) acts() []act {
	acts := []act{{"creation", s.create}, {"canary upgrade", s.upgrade}, {"upgrade that is rolled back", s.rollBack}}
	if s.all {
		acts = append(acts, act{"drift", s.drift}, act{"scale-in and -out", s.scale}, act{"leader last", s.leaderLast},
			act{"delete of the leader while the hook is away", s.hookAway})
	}
	return append(acts, act{"acknowledged writes", s.data}, act{"deletion with a backup", s.remove})
}

// play shows the acts one after the other.
func (s *show) play(ctx context.Context) error {
	for _, a := range s.acts() {
		if err := a.play(ctx); err != nil {
			return err
		}
	}
	s.print("done")
	return nil
}

func (s *show) create(ctx context.Context) error {
	s.print("kubectl apply -k examples/kvstore/config/sample: 5 replicas of version 1.0.0")
	if err := s.applySample(ctx, sampleHook, sampleRules, sampleCluster); err != nil {
		return err
	}
	if err := s.await(ctx, "the cluster is ready", isPhase(kvstorev1.PhaseReady, "1.0.0", 5)); err != nil {
		return err
	}
	s.print("writers and readers start; their history is checked in the end")
	return s.startLoad()
}

// upgrade kills the operator in the middle of the upgrade. Each pod is permitted only after the hook has approved it.
func (s *show) upgrade(ctx context.Context) error {
	permits, err := s.recordPermits(ctx)
	if err != nil {
		return err
	}
	err = s.upgradeKilled(ctx)
	seen := permits.end()
	if err == nil && len(seen) != replicas {
		err = fmt.Errorf("%w: %d permits, want %d", errPermit, len(seen), replicas)
	}
	return errors.Join(err, s.checkPermits(seen))
}

func (s *show) upgradeKilled(ctx context.Context) error {
	if err := s.setVersion(ctx, "2.0.0"); err != nil {
		return err
	}
	halfway := func(c *kvstorev1.KVStoreCluster) bool {
		return c.Status.Upgrade != nil && c.Status.Upgrade.Ordinal == 3 && c.Status.Upgrade.Step == kvstorev1.StepReplacing
	}
	if err := s.await(ctx, "pod my-cluster-3 is being replaced", halfway); err != nil {
		return err
	}
	s.operator.Kill()
	s.print("kill -9 of the operator; another starts")
	if err := s.startOperator(ctx); err != nil {
		return err
	}
	return s.await(ctx, "version 2.0.0 on every pod", isPhase(kvstorev1.PhaseReady, "2.0.0", 5))
}

// rollBack upgrades to a version whose health checks fail.
func (s *show) rollBack(ctx context.Context) error {
	if err := s.setVersion(ctx, "3.0.0-bad"); err != nil {
		return err
	}
	if err := s.await(ctx, "rolled back", isPhase(kvstorev1.PhaseFailed, "2.0.0", 5)); err != nil {
		return err
	}
	if err := s.setVersion(ctx, "2.0.0"); err != nil {
		return err
	}
	return s.await(ctx, "the spec is back at 2.0.0", isPhase(kvstorev1.PhaseReady, "2.0.0", 5))
}

// drift changes the StatefulSet by hand.
func (s *show) drift(ctx context.Context) error {
	s.print("kubectl set image and kubectl scale of the StatefulSet, by hand")
	if err := s.stage.Kubectl(ctx, "-n", s.namespace, "set", "image", "statefulset/"+name, "kvstore="+image+":drifted"); err != nil {
		return err
	}
	if err := s.stage.Kubectl(ctx, "-n", s.namespace, "scale", "statefulset/"+name, "--replicas=7"); err != nil {
		return err
	}
	repaired := func(ctx context.Context) (bool, error) {
		var set appsv1.StatefulSet
		if err := s.admin.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, &set); err != nil {
			return false, err
		}
		return *set.Spec.Replicas == 5 && set.Spec.Template.Spec.Containers[0].Image == image+":2.0.0" && set.Status.ReadyReplicas == 5 &&
			set.Status.Replicas == 5, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, polling, patience, true, repaired); err != nil {
		return fmt.Errorf("repairing the drift: %w", err)
	}
	return s.await(ctx, "the drift is repaired", isPhase(kvstorev1.PhaseReady, "2.0.0", 5))
}

func (s *show) scale(ctx context.Context) error {
	for _, replicas := range []int32{3, 5} {
		s.print("spec.replicas = %d", replicas)
		if err := s.edit(ctx, func(c *kvstorev1.KVStoreCluster) { c.Spec.Replicas = replicas }); err != nil {
			return err
		}
		if err := s.await(ctx, fmt.Sprintf("%d replicas are ready", replicas), isPhase(kvstorev1.PhaseReady, "2.0.0", replicas)); err != nil {
			return err
		}
	}
	return nil
}

// data ends the load, and prints its report.
func (s *show) data(context.Context) error {
	r, err := s.endLoad()
	if err != nil {
		return err
	}
	s.print("%d writes and %d reads acknowledged; failed operations: %d writes, %d reads", r.Writes.Succeeded, r.Reads.Succeeded, r.Writes.Failed, r.Reads.Failed)
	s.print("lost writes: %d; repeated writes: %d; linearizable: %s; failed attempts that were repeated: %d writes, %d reads; longest: %d ms, %d ms",
		r.LostWrites, r.RepeatedWrites, r.Linearizable, r.Writes.FailedAttempts, r.Reads.FailedAttempts, r.Writes.MaxMillis, r.Reads.MaxMillis)
	for _, change := range r.LeaderChanges {
		s.print("leader %s -> %s: %d ms without an answer", change.OldLeader, change.NewLeader, change.Millis)
	}
	for _, failure := range r.Failures {
		s.print("failed attempts: %d %s: %s", failure.Count, failure.Kind, failure.Reason)
	}
	if r.Reads.Failed+r.Writes.Failed+r.LostWrites+r.RepeatedWrites > 0 || r.Writes.Succeeded == 0 || r.Reads.Succeeded == 0 {
		return errors.New("operations have failed, or writes are lost")
	}
	return nil
}

// remove deletes the cluster while the provider of backups is down.
func (s *show) remove(ctx context.Context) error {
	s.backups.setDown(true)
	s.print("kubectl delete kvs %s, while the provider of backups is down", name)
	if err := s.stage.Kubectl(ctx, "-n", s.namespace, "delete", "kvs", name, "--wait=false"); err != nil {
		return err
	}
	failing := func(c *kvstorev1.KVStoreCluster) bool {
		backedUp := meta.FindStatusCondition(c.Status.Conditions, kvstorev1.ConditionBackedUp)
		return backedUp != nil && backedUp.Reason == kvstorev1.ReasonBackupFailing
	}
	if err := s.await(ctx, "the backup fails, and the conditions report it", failing); err != nil {
		return err
	}
	claims, err := s.count(ctx, &corev1.PersistentVolumeClaimList{})
	if err != nil {
		return err
	}
	if claims != 5 {
		return fmt.Errorf("%d claims before the backup, want 5", claims)
	}
	s.backups.setDown(false)
	s.print("the provider is back")
	if err := s.await(ctx, "", func(c *kvstorev1.KVStoreCluster) bool { return c == nil }); err != nil {
		return err
	}
	if claims, err = s.count(ctx, &corev1.PersistentVolumeClaimList{}); err != nil {
		return err
	}
	count, size := s.backups.bytes()
	s.print("the cluster is gone; claims: %d; backups: %d of %d bytes", claims, count, size)
	if claims != 0 || count != 1 || size == 0 {
		return errors.New("the deletion left claims, or no backup")
	}
	return nil
}

func (s *show) count(ctx context.Context, list client.ObjectList) (int, error) {
	if err := s.admin.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		return 0, fmt.Errorf("listing: %w", err)
	}
	return meta.LenList(list), nil
}

func (s *show) setVersion(ctx context.Context, version string) error {
	s.print("spec.version = %s", version)
	return s.edit(ctx, func(c *kvstorev1.KVStoreCluster) { c.Spec.Version = version })
}

func (s *show) edit(ctx context.Context, change func(*kvstorev1.KVStoreCluster)) error {
	cluster := &kvstorev1.KVStoreCluster{}
	if err := s.admin.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, cluster); err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}
	changed := cluster.DeepCopy()
	change(changed)
	if err := s.admin.Patch(ctx, changed, client.MergeFrom(cluster)); err != nil {
		return fmt.Errorf("editing the cluster: %w", err)
	}
	return nil
}

// isPhase is true for a cluster that is in a phase with a version, and all of whose replicas are ready.
func isPhase(phase kvstorev1.ClusterPhase, version string, replicas int32) func(*kvstorev1.KVStoreCluster) bool {
	return func(c *kvstorev1.KVStoreCluster) bool {
		return c != nil && c.Status.Phase == phase && c.Status.CurrentVersion == version && c.Status.ReadyReplicas == replicas &&
			c.Status.ObservedGeneration == c.Generation && meta.IsStatusConditionFalse(c.Status.Conditions, kvstorev1.ConditionReconciling)
	}
}

// await prints why the cluster is not ready, whenever that changes, until a condition holds. The cluster
// is nil when it does not exist.
func (s *show) await(ctx context.Context, reached string, condition func(*kvstorev1.KVStoreCluster) bool) error {
	var last metav1.Condition
	var cluster *kvstorev1.KVStoreCluster
	err := wait.PollUntilContextTimeout(ctx, polling, patience, true, func(ctx context.Context) (bool, error) {
		if s.operator.HasEnded() {
			return false, s.operator.Err()
		}
		cluster = &kvstorev1.KVStoreCluster{}
		err := s.admin.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, cluster)
		if apierrors.IsNotFound(err) {
			return condition(nil), nil
		}
		if err != nil {
			return false, err
		}
		if ready := meta.FindStatusCondition(cluster.Status.Conditions, kvstorev1.ConditionReady); ready != nil && ready.Message != last.Message {
			last = *ready
			s.print("  %s: %s: %s", cluster.Status.Phase, ready.Reason, ready.Message)
		}
		return condition(cluster), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %q: %w; the cluster: %+v", reached, err, cluster)
	}
	if reached != "" {
		s.print("%s", reached)
	}
	return nil
}
