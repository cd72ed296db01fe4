package v1

// Condition types of a KVStoreCluster. Ready, Reconciling and Stalled have the meaning of kstatus.
const (
	// ConditionReady is True when every replica is ready, runs spec.version, and nothing is in
	// progress.
	ConditionReady = "Ready"

	// ConditionReconciling is True while an upgrade, a scale-in, a rollback or a deletion is in
	// progress. Its reason and message state the condition for the next step.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when only an edit helps: the last upgrade was rolled back, or an
	// object of the same name belongs to another owner.
	ConditionStalled = "Stalled"

	// ConditionAvailable is True when more than half of the replicas are ready, so that the store
	// can commit writes.
	ConditionAvailable = "Available"

	// ConditionUpgraded is True when every replica runs spec.version, and False while an upgrade is
	// in progress and after it has failed.
	ConditionUpgraded = "Upgraded"

	// ConditionSchemaMigrated is True when the store has the schema of spec.schemaVersion or a later one; absent while both are 0.
	ConditionSchemaMigrated = "SchemaMigrated"

	// ConditionBackedUp reports the backup of a KVStoreCluster that is being deleted; absent
	// otherwise. Once it is True, the deletion of the data begins.
	ConditionBackedUp = "BackedUp"
)

// Condition reasons. They never change.
const (
	// ReasonAsSpecified means that the cluster is as its spec requests.
	ReasonAsSpecified = "AsSpecified"

	// ReasonWaitingForReplicas means that replicas are missing or not ready.
	ReasonWaitingForReplicas = "WaitingForReplicas"

	// ReasonWaitingForPermission means that PodOps has not yet allowed the operation on a pod:
	// rules withhold it, or its traffic is not off.
	ReasonWaitingForPermission = "WaitingForPermission"

	// ReasonWaitingForLeader means that it is unknown which pod leads, so no pod is operated on.
	ReasonWaitingForLeader = "WaitingForLeader"

	// ReasonMovingLeader means that leadership is moved away from a pod before its operation.
	ReasonMovingLeader = "MovingLeader"

	// ReasonReplacingPod means that a pod is being replaced by a pod of the other version.
	ReasonReplacingPod = "ReplacingPod"

	// ReasonCheckingHealth means that the Job of a health check runs.
	ReasonCheckingHealth = "CheckingHealth"

	// ReasonMigratingSchema means that a Job migrates the schema, or waits for a healthy member of the store.
	ReasonMigratingSchema = "MigratingSchema"

	// ReasonMigrationFailing means that the migration has failed. It is repeated, and no pod is replaced before it succeeds.
	ReasonMigrationFailing = "MigrationFailing"

	// ReasonScalingIn means that a pod is being removed.
	ReasonScalingIn = "ScalingIn"

	// ReasonQuorumReached means that more than half of the replicas are ready.
	ReasonQuorumReached = "QuorumReached"

	// ReasonNeverAvailable means that more than half of the replicas have never been ready, so that
	// no write was ever acknowledged.
	ReasonNeverAvailable = "NeverAvailable"

	// ReasonQuorumLost means that at most half of the replicas are ready.
	ReasonQuorumLost = "QuorumLost"

	// ReasonHealthCheckFailed means that the health check of an upgraded pod has failed.
	ReasonHealthCheckFailed = "HealthCheckFailed"

	// ReasonPodNotReady means that an upgraded pod has not become ready in time.
	ReasonPodNotReady = "PodNotReady"

	// ReasonSuperseded means that spec.version was changed during an upgrade.
	ReasonSuperseded = "Superseded"

	// ReasonNameTaken means that an object of a name that the cluster needs has another owner.
	ReasonNameTaken = "NameTaken"

	// ReasonBackupRunning means that the Job of the backup runs.
	ReasonBackupRunning = "BackupRunning"

	// ReasonBackupFailing means that the backup has failed at least once. It is repeated.
	ReasonBackupFailing = "BackupFailing"

	// ReasonBackupComplete means that the backup has succeeded.
	ReasonBackupComplete = "BackupComplete"

	// ReasonBackupSkipped means that there is nothing to back up, or that the annotation
	// SkipBackupAnnotationKey lets the deletion continue without a backup.
	ReasonBackupSkipped = "BackupSkipped"

	// ReasonBackupImpossible means that the PersistentVolumeClaims were deleted before a backup was made, with their
	// namespace for example. The deletion continues.
	ReasonBackupImpossible = "BackupImpossible"

	// ReasonStepFailed means that the API server rejects the next step. It is repeated.
	ReasonStepFailed = "StepFailed"

	// ReasonDeletingPods means that the StatefulSet and its pods are being deleted.
	ReasonDeletingPods = "DeletingPods"

	// ReasonDeletingClaims means that PersistentVolumeClaims are being deleted.
	ReasonDeletingClaims = "DeletingClaims"
)
