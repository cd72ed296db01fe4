package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

func statusEqual(a, b kvstorev1.KVStoreClusterStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// created returns a simulation with a cluster that is ready.
func created(t interface {
	Helper()
	Fatalf(string, ...any)
}, replicas int32, strategy kvstorev1.UpgradeStrategyType) *simulation {
	t.Helper()
	w := newSimulation(replicas, strategy)
	if !w.settle() || w.cluster.Status.Phase != kvstorev1.PhaseReady {
		t.Fatalf("the cluster is not ready: %+v", w.cluster.Status)
	}
	return w
}

func TestASteadyClusterIsNotWritten(t *testing.T) {
	w := created(t, 5, kvstorev1.CanaryUpgradeStrategy)
	before := w.writes
	for range 10 {
		w.operate(1000)
		w.now = w.now.Add(time.Hour)
	}
	if w.writes != before {
		t.Errorf("%d writes to a steady cluster", w.writes-before)
	}
}

func TestHowUpgradesEnd(t *testing.T) {
	type result struct {
		Phase    kvstorev1.ClusterPhase
		Current  string
		Versions []string
		Upgraded string
	}
	for sentence, tc := range map[string]struct {
		replicas int32
		strategy kvstorev1.UpgradeStrategyType
		to       string
		want     result
	}{
		"a canary that passes its checks": {5, kvstorev1.CanaryUpgradeStrategy, better,
			result{kvstorev1.PhaseReady, better, []string{better}, kvstorev1.ReasonAsSpecified}},
		"a rolling update": {3, kvstorev1.RollingUpdateUpgradeStrategy, better,
			result{kvstorev1.PhaseReady, better, []string{better}, kvstorev1.ReasonAsSpecified}},
		"a canary whose check fails is rolled back": {5, kvstorev1.CanaryUpgradeStrategy, sick,
			result{kvstorev1.PhaseFailed, good, []string{good}, kvstorev1.ReasonHealthCheckFailed}},
		"a rolling update runs no checks": {3, kvstorev1.RollingUpdateUpgradeStrategy, sick,
			result{kvstorev1.PhaseReady, sick, []string{sick}, kvstorev1.ReasonAsSpecified}},
		"a pod that never becomes ready is rolled back": {3, kvstorev1.RollingUpdateUpgradeStrategy, unready,
			result{kvstorev1.PhaseFailed, good, []string{good}, kvstorev1.ReasonPodNotReady}},
		"a cluster of one pod": {1, kvstorev1.CanaryUpgradeStrategy, better,
			result{kvstorev1.PhaseReady, better, []string{better}, kvstorev1.ReasonAsSpecified}},
		"a cluster of one pod is rolled back": {1, kvstorev1.CanaryUpgradeStrategy, sick,
			result{kvstorev1.PhaseFailed, good, []string{good}, kvstorev1.ReasonHealthCheckFailed}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := created(t, tc.replicas, tc.strategy)
			w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = tc.to })
			if !w.settle() {
				t.Fatalf("does not settle: %+v", w.cluster.Status)
			}
			got := result{w.cluster.Status.Phase, w.cluster.Status.CurrentVersion, w.versions(),
				meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionUpgraded).Reason}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(w.violations) > 0 {
				t.Error(w.violations)
			}
		})
	}
}

func TestAVersionThatFailedIsTriedAgainAfterAnother(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	for _, version := range []string{sick, good, sick, better} {
		w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = version })
		if !w.settle() {
			t.Fatalf("%s does not settle: %+v", version, w.cluster.Status)
		}
		want := kvstorev1.PhaseReady
		if version == sick {
			want = kvstorev1.PhaseFailed
		}
		if got := w.cluster.Status.Phase; got != want {
			t.Errorf("version %s: want %s, got %s", version, want, got)
		}
	}
	if checks := len(w.jobs); checks != 1+1+3 {
		t.Errorf("want a check of each attempt's canary, and 3 of the last, got %d", checks)
	}
}

func TestADeletionWaitsForItsBackup(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.backupDown = true
	w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
	for range 100 {
		w.operate(1000)
		w.controllers()
		w.now = w.now.Add(10 * time.Second)
	}
	backedUp := meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionBackedUp)
	if w.gone || backedUp.Reason != kvstorev1.ReasonBackupFailing || w.cluster.Status.BackupFailures < 3 || len(w.claims) != 3 || len(w.pods) != 3 {
		t.Fatalf("gone %t, %+v, %d claims, %d pods", w.gone, backedUp, len(w.claims), len(w.pods))
	}
	if jobs := len(w.jobs); jobs > 2 {
		t.Errorf("%d Jobs remain", jobs)
	}
	w.backupDown = false
	if !w.settle() || !w.gone || len(w.claims)+len(w.pods) > 0 {
		t.Errorf("gone %t, %d claims, %d pods", w.gone, len(w.claims), len(w.pods))
	}
}

func TestADeletionSkipsItsBackup(t *testing.T) {
	available := func(t *testing.T) *simulation { t.Helper(); return created(t, 3, kvstorev1.CanaryUpgradeStrategy) }
	for sentence, tc := range map[string]struct {
		in    func(*testing.T) *simulation
		skips bool
	}{
		"by annotation": {func(t *testing.T) *simulation {
			w := available(t)
			w.cluster.Annotations = map[string]string{kvstorev1.SkipBackupAnnotationKey: ""}
			return w
		}, true},
		"of a store that was never available": {func(*testing.T) *simulation {
			w := newSimulation(3, kvstorev1.CanaryUpgradeStrategy)
			w.cluster.Spec.Version = unready
			w.settle()
			return w
		}, true},
		"and not of a store that became available while no operator ran": {func(t *testing.T) *simulation {
			w := available(t)
			w.cluster.Status = kvstorev1.KVStoreClusterStatus{}
			return w
		}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := tc.in(t)
			w.backupDown = true
			w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
			for range 20 {
				w.operate(1000)
				w.controllers()
				w.now = w.now.Add(time.Second)
			}
			if w.gone != tc.skips || (len(w.jobs) == 0) != tc.skips {
				t.Errorf("gone %t, %d Jobs", w.gone, len(w.jobs))
			}
		})
	}
}

// waiting returns a simulation whose upgrade waits to operate on the second pod, as rules withhold it.
func waiting(t *testing.T) *simulation {
	t.Helper()
	w := created(t, 3, kvstorev1.RollingUpdateUpgradeStrategy)
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = better })
	for range 100 {
		if u := w.cluster.Status.Upgrade; u != nil && u.Step == kvstorev1.StepWaiting && u.Ordinal == 1 {
			return w
		}
		w.operate(1000)
		w.controllers()
		w.now = w.now.Add(time.Second)
	}
	t.Fatalf("the upgrade does not come to its second pod: %+v", w.cluster.Status)
	return nil
}

func TestAnUpgradeWaitsForAnUpgradedPodThatFailsLater(t *testing.T) {
	for sentence, tc := range map[string]struct {
		away time.Duration
		want kvstorev1.ClusterPhase
	}{
		"for a moment":                  {time.Second, kvstorev1.PhaseReady},
		"for longer than the deadline":  {settings().ProgressDeadline + time.Second, kvstorev1.PhaseFailed},
		"for shorter than the deadline": {settings().ProgressDeadline - time.Second, kvstorev1.PhaseReady},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := waiting(t)
			w.now = w.now.Add(settings().ProgressDeadline + time.Hour) // rules withhold the next pod
			w.operate(1000)
			w.pods[2].heal(false, w.now)
			w.operate(1000)
			w.now = w.now.Add(tc.away)
			w.operate(1000)
			if !w.settle() || w.cluster.Status.Phase != tc.want {
				t.Errorf("want phase %s, got %+v", tc.want, w.cluster.Status)
			}
		})
	}
}

// TestAPodThatIsRestartedInPlaceKeepsItsVersion has images as a PodOperation writes them: of the same digest, for every restart another.
func TestAPodThatIsRestartedInPlaceKeepsItsVersion(t *testing.T) {
	const repository, digest = "my-repo/kvstore", "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for sentence, image := range map[string]string{
		"once": repository + ":" + better + digest, "twice": repository + digest, "three times": repository + ":restarted" + digest,
	} {
		t.Run(sentence+" in an upgrade", func(t *testing.T) {
			w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
			w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = better })
			for w.cluster.Status.Upgrade == nil || w.cluster.Status.Upgrade.Step != kvstorev1.StepChecking {
				w.operate(1000)
				w.controllers()
				w.now = w.now.Add(time.Second)
			}
			w.pods[2].image = image
			if !w.settle() || w.cluster.Status.Phase != kvstorev1.PhaseReady || w.cluster.Status.CurrentVersion != better {
				t.Errorf("%+v", w.cluster.Status)
			}
		})
		t.Run(sentence+" in the creation", func(t *testing.T) {
			w := newSimulation(3, kvstorev1.CanaryUpgradeStrategy)
			w.cluster.Spec.Version = better
			for len(w.pods) < 3 {
				w.operate(1000)
				w.controllers()
				w.now = w.now.Add(time.Second)
			}
			w.pods[2].image = image
			if !w.settle() || w.cluster.Status.Phase != kvstorev1.PhaseReady {
				t.Errorf("%+v", w.cluster.Status)
			}
		})
	}
}

func TestADeletionLeavesAStatefulSetOfAnotherOwner(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	// kubectl delete --cascade=orphan: the garbage collector removes owner references, then its finalizer.
	w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
	finalizers := w.cluster.Finalizers
	w.cluster.Finalizers = append(slices.Clone(finalizers), metav1.FinalizerOrphanDependents)
	if writes := w.operate(1000); writes > 0 {
		t.Errorf("%d writes before the owner references are removed", writes)
	}
	w.set = w.set.DeepCopy()
	w.set.OwnerReferences, w.cluster.Finalizers = nil, finalizers
	if !w.settle() || !w.gone || len(w.claims) != 3 || len(w.pods) != 3 || w.set == nil {
		t.Errorf("gone %t, %d claims, %d pods, %+v", w.gone, len(w.claims), len(w.pods), w.cluster.Status)
	}
}

func TestAScaleInBeginsWithItsBackup(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.backupDown = true
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Replicas, s.BackupBeforeScaleIn = 1, true })
	w.rounds(200)
	why := meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionReconciling)
	if len(w.pods) != 3 || w.offTraffic() || !strings.HasPrefix(why.Message, "the backup before the scale-in has failed: Job db-scale-in-2: ") {
		t.Errorf("%d pods, off traffic %t, %+v", len(w.pods), w.offTraffic(), why)
	}
	w.backupDown = false
	if !w.settle() || len(w.pods) != 1 || len(w.jobs) != 1 || len(w.violations) > 0 {
		t.Errorf("%d pods, %d Jobs, %+v, %v", len(w.pods), len(w.jobs), w.cluster.Status, w.violations)
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Replicas = 3 })
	if !w.settle() || len(w.pods) != 3 {
		t.Errorf("%d pods, want those of a scale-out", len(w.pods))
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Replicas = 2 })
	if !w.settle() || len(w.pods) != 2 || len(w.jobs) != 2 {
		t.Errorf("%d pods, %d Jobs, want a backup for each scale-in", len(w.pods), len(w.jobs))
	}
}

// rounds runs everything for some seconds.
func (w *simulation) rounds(n int) {
	for range n {
		w.operate(1000)
		w.controllers()
		w.now = w.now.Add(time.Second)
	}
}

func TestAnUpgradeBeginsWithItsMigration(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.migrationFails = true
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version, s.SchemaVersion = better, 2 })
	w.rounds(200)
	migrated := meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionSchemaMigrated)
	if w.offTraffic() || w.cluster.Status.Phase != kvstorev1.PhaseUpgrading || migrated.Reason != kvstorev1.ReasonMigrationFailing ||
		!strings.HasPrefix(migrated.Message, "the migration of the schema to version 2 has failed: Job db-migrate-2: ") {
		t.Errorf("off traffic %t, phase %s, %+v", w.offTraffic(), w.cluster.Status.Phase, migrated)
	}
	if diff := cmp.Diff([]string{good}, w.versions()); diff != "" {
		t.Errorf("versions before the migration (-want +got):\n%s", diff)
	}
	w.migrationFails = false
	if !w.settle() || w.cluster.Status.CurrentVersion != better || w.cluster.Status.SchemaVersion != 2 || len(w.violations) > 0 ||
		!meta.IsStatusConditionTrue(w.cluster.Status.Conditions, kvstorev1.ConditionSchemaMigrated) {
		t.Errorf("%+v, %v", w.cluster.Status, w.violations)
	}
}

// TestAMigrationIsWithdrawn edits the spec while a Job runs.
func TestAMigrationIsWithdrawn(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.migrationHang = true
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.SchemaVersion = 1 })
	w.rounds(5)
	if w.jobs["db-migrate-2"] == nil || meta.IsStatusConditionTrue(w.cluster.Status.Conditions, kvstorev1.ConditionReady) {
		t.Fatalf("Jobs %v, %+v", w.jobs, w.cluster.Status)
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.SchemaVersion = 2 })
	w.rounds(5)
	if w.jobs["db-migrate-2"] != nil || w.jobs["db-migrate-3"] == nil {
		t.Errorf("Jobs %v, want one for the new spec", w.jobs)
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.SchemaVersion = 0 })
	if !w.settle() || len(w.jobs) > 0 || w.cluster.Status.SchemaVersion != 0 || w.cluster.Status.Phase != kvstorev1.PhaseReady || len(w.violations) > 0 {
		t.Errorf("Jobs %v, %+v, %v", w.jobs, w.cluster.Status, w.violations)
	}
}

func TestAVersionThatFailedMigratesNothing(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version, s.SchemaVersion = sick, 1 })
	if !w.settle() || w.cluster.Status.Phase != kvstorev1.PhaseFailed || w.schema != 1 {
		t.Fatalf("schema %d, %+v", w.schema, w.cluster.Status)
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.SchemaVersion = 2 })
	if !w.settle() || w.schema != 1 {
		t.Errorf("schema %d by the version that was rolled back", w.schema)
	}
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = better })
	if !w.settle() || w.schema != 2 || w.cluster.Status.CurrentVersion != better || len(w.violations) > 0 {
		t.Errorf("schema %d, %+v, %v", w.schema, w.cluster.Status, w.violations)
	}
}

// TestAForegroundDeletionBeginsWithItsBackup has a garbage collector that is faster than the operator, and one that is not.
func TestAForegroundDeletionBeginsWithItsBackup(t *testing.T) {
	for sentence, collected := range map[string]bool{"the StatefulSet is deleted already": true, "the StatefulSet is there": false} {
		t.Run(sentence, func(t *testing.T) {
			w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
			w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
			w.cluster.Finalizers = append(w.cluster.Finalizers, metav1.FinalizerDeleteDependents)
			if collected {
				w.set = nil
				w.controllers()
			}
			if !w.settle() || !w.gone || len(w.claims)+len(w.pods) > 0 || len(w.violations) > 0 {
				t.Errorf("gone %t, %d claims, %d pods, %v", w.gone, len(w.claims), len(w.pods), w.violations)
			}
			if len(w.jobs) != 1 {
				t.Errorf("%d Jobs, want the backup", len(w.jobs))
			}
		})
	}
}

func TestADeletionEndsWithoutABackupWhereOthersHaveDeletedTheData(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.set = nil
	clear(w.pods)
	clear(w.claims)
	w.operate(1000)
	backedUp := meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionBackedUp)
	if backedUp == nil || backedUp.Status != metav1.ConditionFalse || backedUp.Reason != kvstorev1.ReasonBackupImpossible {
		t.Errorf("BackedUp is %+v", backedUp)
	}
	if !w.settle() || !w.gone || len(w.jobs) > 0 || w.set != nil {
		t.Errorf("gone %t, %d Jobs", w.gone, len(w.jobs))
	}
}

func TestADeletionWaitsForAMemberThatItsBackupCanRead(t *testing.T) {
	w := created(t, 3, kvstorev1.CanaryUpgradeStrategy)
	w.cluster.DeletionTimestamp = &metav1.Time{Time: w.now}
	for _, m := range w.pods {
		m.heal(false, w.now)
	}
	w.operate(1000)
	backedUp := meta.FindStatusCondition(w.cluster.Status.Conditions, kvstorev1.ConditionBackedUp)
	if backedUp == nil || backedUp.Reason != kvstorev1.ReasonWaitingForReplicas || len(w.jobs) > 0 {
		t.Errorf("BackedUp is %+v, %d Jobs", backedUp, len(w.jobs))
	}
	if !w.settle() || !w.gone || w.cluster.Status.BackupFailures > 0 {
		t.Errorf("gone %t, %+v", w.gone, w.cluster.Status)
	}
}

func TestAnUpgradeReportsAPodThatIsNotUnderPodOps(t *testing.T) {
	w := waiting(t)
	s := w.snapshot()
	delete(s.Members[1].Pod.Labels, appsv1alpha1.ControlLabelKey)
	d := plan.Decide(s, settings(), w.now)
	why := meta.FindStatusCondition(d.Status.Conditions, kvstorev1.ConditionReady)
	if d.Begin != nil || !strings.Contains(why.Message, "pod db-1 lacks the label "+appsv1alpha1.ControlLabelKey) {
		t.Errorf("begins %+v, and reports %+v", d.Begin, why)
	}
}

func TestAStatefulSetThatIsDeletedInAnUpgradeIsCreatedAgain(t *testing.T) {
	w := waiting(t)
	w.set = nil
	w.operate(1000) // its pods are not deleted yet
	if w.set == nil {
		t.Error("the StatefulSet is not created while pods exist")
	}
	w.set = nil
	if !w.settle() || w.cluster.Status.Phase != kvstorev1.PhaseReady || w.cluster.Status.CurrentVersion != better {
		t.Errorf("%+v", w.cluster.Status)
	}
}

// TestAnyScheduleEndsAsSpecified edits a cluster at any time, ends the operator between any two writes,
// and checks at the end that the cluster is as its spec requests, or that a bad version was rolled
// back. On the way no leader goes, and no healthy pod while another is not healthy.
func TestAnyScheduleEndsAsSpecified(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]kvstorev1.UpgradeStrategyType{kvstorev1.CanaryUpgradeStrategy, kvstorev1.RollingUpdateUpgradeStrategy})
		w := created(t, rapid.Int32Range(1, 5).Draw(t, "replicas"), strategy.Draw(t, "strategy"))
		t.Repeat(map[string]func(*rapid.T){
			"operator": func(t *rapid.T) { w.operate(1000) },
			"operator that ends": func(t *rapid.T) {
				w.operate(rapid.IntRange(0, 4).Draw(t, "writes"))
			},
			"controllers": func(*rapid.T) { w.controllers() },
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			},
			"version": func(t *rapid.T) {
				version := rapid.SampledFrom([]string{good, better, sick, unready}).Draw(t, "version")
				w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = version })
			},
			"replicas": func(t *rapid.T) {
				replicas := rapid.Int32Range(1, 5).Draw(t, "replicas")
				w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Replicas = replicas })
			},
			"schema": func(t *rapid.T) {
				schema := rapid.Int32Range(0, 3).Draw(t, "schema")
				w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.SchemaVersion = schema })
			},
			"drift": func(t *rapid.T) {
				if w.set != nil {
					w.set = w.set.DeepCopy()
					w.set.Spec.Template.Spec.Containers[0].Env = nil
				}
			},
			"restart in place": func(t *rapid.T) {
				if m := w.pods[rapid.Int32Range(0, 4).Draw(t, "ordinal")]; m != nil {
					m.image = "my-repo/kvstore" + rapid.SampledFrom([]string{"", ":" + m.version, ":restarted"}).Draw(t, "tag") + "@sha256:0123"
				}
			},
			"deletion of the StatefulSet and its pods": func(*rapid.T) {
				w.set, w.current, w.leader = nil, "", -1
				clear(w.pods)
			},
			"pod that joins the store as it goes": func(t *rapid.T) {
				w.voters[plan.PodName("db", rapid.Int32Range(0, 7).Draw(t, "ordinal"))] = true
			},
			"": func(t *rapid.T) {
				if len(w.violations) > 0 {
					t.Fatal(w.violations)
				}
			},
		})
		if !w.settle() {
			t.Fatalf("does not settle: %+v", w.cluster.Status)
		}
		w.checkEnd(t)
	})
}

// checkEnd checks the state in which a cluster has settled.
func (w *simulation) checkEnd(t *rapid.T) {
	status, spec := w.cluster.Status, w.cluster.Spec
	switch status.Phase {
	case kvstorev1.PhaseReady:
		if status.CurrentVersion != spec.Version {
			t.Fatalf("ready with version %s, want %s", status.CurrentVersion, spec.Version)
		}
	case kvstorev1.PhaseFailed:
		late := status.Upgrade.Reason == kvstorev1.ReasonPodNotReady // in this schedule controllers may pause for long
		if spec.Version != sick && spec.Version != unready && !late {
			t.Fatalf("the upgrade to %s failed: %+v", spec.Version, status.Upgrade)
		}
	default:
		t.Fatalf("ends in phase %s: %+v", status.Phase, status)
	}
	if status.SchemaVersion > w.schema || status.Phase == kvstorev1.PhaseReady && w.schema < spec.SchemaVersion {
		t.Fatalf("the schema has version %d, want %d: %+v", w.schema, spec.SchemaVersion, status)
	}
	if diff := cmp.Diff([]string{status.CurrentVersion}, w.versions()); diff != "" {
		t.Fatalf("versions (-want +got):\n%s", diff)
	}
	if int32(len(w.pods)) != spec.Replicas || status.ReadyReplicas != spec.Replicas {
		t.Fatalf("%d pods, %d ready, want %d", len(w.pods), status.ReadyReplicas, spec.Replicas)
	}
	for member := range w.voters {
		if ordinal, _ := plan.Ordinal("db", member); w.pods[ordinal] == nil {
			t.Fatalf("%s is a member of the store, and no pod", member)
		}
	}
	for ordinal, m := range w.pods {
		if len(m.begun) > 0 {
			t.Fatalf("the lifecycle of db-%d has not ended", ordinal)
		}
	}
	if len(w.violations) > 0 {
		t.Fatal(w.violations)
	}
}
