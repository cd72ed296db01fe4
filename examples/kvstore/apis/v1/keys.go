package v1

// Finalizer keeps a deleted KVStoreCluster until its backup is complete and its pods and
// PersistentVolumeClaims are deleted. The operator adds it before it creates anything
// else.
const Finalizer = GroupName + "/finalizer"

// SkipBackupAnnotationKey lets, with any value, the deletion of a KVStoreCluster continue without a
// backup. The user sets it, when the backup can never succeed and the data are not needed.
const SkipBackupAnnotationKey = GroupName + "/skip-backup"

// RoleLabelKey is the label by which rules find the leader: RoleLeader on the pod that leads, absent
// on all other pods. The operator writes it.
const RoleLabelKey = GroupName + "/role"

// RoleLeader is the value of RoleLabelKey on the leader.
const RoleLeader = "leader"

// Labels of every object that the operator creates for a KVStoreCluster.
const (
	// NameLabelKey has the value NameLabelValue.
	NameLabelKey = "app.kubernetes.io/name"

	// NameLabelValue is the value of NameLabelKey.
	NameLabelValue = "kvstore"

	// InstanceLabelKey has the name of the KVStoreCluster.
	InstanceLabelKey = "app.kubernetes.io/instance"

	// ComponentLabelKey separates the pods of the store from the pods of Jobs. Its values
	// are ComponentMember, ComponentHealthCheck, ComponentBackup and ComponentMigration.
	ComponentLabelKey = "app.kubernetes.io/component"
)

// Values of ComponentLabelKey.
const (
	ComponentMember      = "member"
	ComponentHealthCheck = "health-check"
	ComponentBackup      = "backup"
	ComponentMigration   = "migration"
)
