package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// Reasons of events on a KVStoreCluster.
const (
	eventCreated        = "Created"
	eventUpgradeStarted = "UpgradeStarted"
	eventUpgradeFailed  = "UpgradeFailed"
	eventUpgraded       = "Upgraded"
	eventRolledBack     = "RolledBack"
	eventBackupFailed   = "BackupFailed"
	eventBackedUp       = "BackedUp"
	eventFailing        = "Failing"

	eventBackupImpossible = "BackupImpossible"
)

// record records events for changes of the status that a user waits for.
func (r *Reconciler) record(cluster *kvstorev1.KVStoreCluster, before, after *kvstorev1.KVStoreClusterStatus) {
	event := func(kind, reason, note string, args ...any) {
		r.recorder.Eventf(cluster, nil, kind, reason, reason, note, args...)
	}
	if before.CurrentVersion == "" && after.CurrentVersion != "" {
		event(corev1.EventTypeNormal, eventCreated, "every replica is ready with version %s", after.CurrentVersion)
	}
	if after.BackupFailures > before.BackupFailures {
		event(corev1.EventTypeWarning, eventBackupFailed, "the backup has failed %d times", after.BackupFailures)
	}
	was, is := meta.FindStatusCondition(before.Conditions, kvstorev1.ConditionBackedUp), meta.FindStatusCondition(after.Conditions, kvstorev1.ConditionBackedUp)
	switch {
	case is == nil || was != nil && was.Reason == is.Reason:
	case is.Status == metav1.ConditionTrue:
		event(corev1.EventTypeNormal, eventBackedUp, "%s", is.Message)
	case is.Reason == kvstorev1.ReasonBackupImpossible:
		event(corev1.EventTypeWarning, eventBackupImpossible, "%s", is.Message)
	}
	recordUpgrade(event, before.Upgrade, after.Upgrade, after.CurrentVersion)
}

// recordUpgrade records how an upgrade changed from one status to the next.
func recordUpgrade(event func(kind, reason, note string, args ...any), was, is *kvstorev1.UpgradeStatus, current string) {
	switch {
	case was == nil && is != nil:
		event(corev1.EventTypeNormal, eventUpgradeStarted, "upgrading from %s to %s", is.FromVersion, is.ToVersion)
	case was == nil:
	case is == nil && current == was.ToVersion:
		event(corev1.EventTypeNormal, eventUpgraded, "every replica has version %s", was.ToVersion)
	case is == nil:
	case is.RollingBack && !was.RollingBack:
		event(corev1.EventTypeWarning, eventUpgradeFailed, "rolling back to %s: %s", is.FromVersion, is.Message)
	case is.Step == kvstorev1.StepRolledBack && was.Step != is.Step:
		event(corev1.EventTypeNormal, eventRolledBack, "every replica has version %s again", is.FromVersion)
	}
}
