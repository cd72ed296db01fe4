package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpgradeStrategyType defines how the pods of a cluster are upgraded.
// +kubebuilder:validation:Enum=RollingUpdate;Canary
type UpgradeStrategyType string

const (
	// RollingUpdateUpgradeStrategy replaces one pod at a time, from the highest ordinal. The next
	// pod follows when the previous pod is ready.
	RollingUpdateUpgradeStrategy UpgradeStrategyType = "RollingUpdate"

	// CanaryUpgradeStrategy replaces one pod at a time, too. The next pod follows when the Job of the
	// health check of the previous pod has succeeded. When it fails, all pods are rolled back.
	CanaryUpgradeStrategy UpgradeStrategyType = "Canary"
)

// KVStoreClusterSpec defines the desired state of KVStoreCluster.
type KVStoreClusterSpec struct {
	// version of the KVStore application to deploy: the tag of its image. A change begins an upgrade;
	// an upgrade in progress is rolled back first. A version whose upgrade has failed is tried again
	// after version has had another value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	Version string `json:"version"`

	// replicas is the number of desired pods in the cluster. A change during an upgrade is carried
	// out after it.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas int32 `json:"replicas"`

	// schemaVersion is the version of the schema that the version needs. While it is higher than status.schemaVersion, a Job on the
	// image of that version migrates the store, before any pod is replaced. Migrations go forward only: earlier versions
	// must be able to read what a migration writes, since they run until they are replaced, and after a rollback.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SchemaVersion int32 `json:"schemaVersion,omitempty"`

	// backupBeforeScaleIn has a Job write a backup before the first pod of a scale-in is removed. The scale-in waits until
	// it has succeeded.
	// +optional
	BackupBeforeScaleIn bool `json:"backupBeforeScaleIn,omitempty"`

	// storage defines the persistent storage of each replica. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storage cannot be changed: a StatefulSet keeps its volumeClaimTemplates"
	Storage StorageSpec `json:"storage"`

	// upgradeStrategy defines how version updates are applied. An upgrade in progress follows a change
	// from its next pod on.
	// +optional
	// +kubebuilder:default=RollingUpdate
	UpgradeStrategy UpgradeStrategyType `json:"upgradeStrategy,omitempty"`
}

// StorageSpec defines the PersistentVolumeClaim of each replica.
type StorageSpec struct {
	// className is the name of the StorageClass of the claims.
	// +required
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`

	// size is the requested storage size, e.g. "10Gi".
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="size must be a quantity above 0, such as 10Gi"
	Size string `json:"size"`
}

// ClusterPhase defines the current phase of the cluster.
// +kubebuilder:validation:Enum=Creating;Ready;Upgrading;Failed;Terminating
type ClusterPhase string

// The phases.
const (
	// PhaseCreating lasts until every replica has been ready at once.
	PhaseCreating ClusterPhase = "Creating"

	// PhaseReady means that no upgrade is in progress. Conditions report replicas that are not ready.
	PhaseReady ClusterPhase = "Ready"

	// PhaseUpgrading lasts until every pod has the new version, or the old version again. It begins with the migration of the schema.
	PhaseUpgrading ClusterPhase = "Upgrading"

	// PhaseFailed means that the last upgrade was rolled back: every pod has the old version.
	PhaseFailed ClusterPhase = "Failed"

	// PhaseTerminating lasts from the deletion of the cluster until the operator removes Finalizer.
	PhaseTerminating ClusterPhase = "Terminating"
)

// UpgradeStep is a step of the upgrade of one pod.
// +kubebuilder:validation:Enum=Waiting;Replacing;Checking;RolledBack
type UpgradeStep string

// The steps.
const (
	// StepWaiting lasts until PodOps allows the operation on the pod, and the pod does not lead.
	StepWaiting UpgradeStep = "Waiting"

	// StepReplacing lasts until a pod of the other version is ready.
	StepReplacing UpgradeStep = "Replacing"

	// StepChecking lasts until the Job of the health check has ended.
	StepChecking UpgradeStep = "Checking"

	// StepRolledBack ends an upgrade that has failed.
	StepRolledBack UpgradeStep = "RolledBack"
)

// UpgradeStatus records an upgrade: everything that an operator needs to continue it after a restart.
// The image and the partition of the StatefulSet follow from it.
type UpgradeStatus struct {
	// generation is the generation of the spec that began the upgrade. Names of Jobs contain it.
	// +required
	Generation int64 `json:"generation"`

	// fromVersion is the version before the upgrade.
	// +required
	// +kubebuilder:validation:MaxLength=128
	FromVersion string `json:"fromVersion"`

	// toVersion is the version of the upgrade.
	// +required
	// +kubebuilder:validation:MaxLength=128
	ToVersion string `json:"toVersion"`

	// replicas is the number of replicas until the upgrade has ended.
	// +required
	Replicas int32 `json:"replicas"`

	// ordinal is the pod that the step is about.
	// +required
	Ordinal int32 `json:"ordinal"`

	// step is the present step of the pod.
	// +required
	Step UpgradeStep `json:"step"`

	// stepStartedAt is when the step began.
	// +required
	StepStartedAt metav1.Time `json:"stepStartedAt"`

	// rollingBack is true when pods go back to fromVersion.
	// +optional
	RollingBack bool `json:"rollingBack,omitempty"`

	// reason of the rollback, as in the condition Upgraded.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message of the rollback, as in the condition Upgraded.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// KVStoreClusterStatus defines the observed state of KVStoreCluster.
type KVStoreClusterStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is the current lifecycle phase of the cluster.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`

	// conditions represent the latest available observations of the cluster's state.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// readyReplicas is the number of pods that are currently running and healthy.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// currentVersion reflects the version of the KVStore application currently running. It changes
	// when an upgrade has succeeded on every pod.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CurrentVersion string `json:"currentVersion,omitempty"`

	// schemaVersion is the version of the schema that the store was last migrated to.
	// +optional
	SchemaVersion int32 `json:"schemaVersion,omitempty"`

	// backupFailures is how many backups have failed while the cluster is being deleted. The name of the
	// Job of the next backup ends in it.
	// +optional
	BackupFailures int32 `json:"backupFailures,omitempty"`

	// upgrade is the upgrade in progress, or the last upgrade if it was rolled back; absent otherwise.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
}

// KVStoreCluster is the Schema for the kvstoreclusters API.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kvs
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".spec.version"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Current",type="string",JSONPath=".status.currentVersion",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="the name must be a DNS label of at most 40 characters that begins with a letter: names of pods, Jobs and a Service contain it"
type KVStoreCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec KVStoreClusterSpec `json:"spec,omitempty"`

	// status is the state that the operator last observed, and the record of an upgrade in progress.
	// +optional
	Status KVStoreClusterStatus `json:"status,omitempty"`
}

// KVStoreClusterList contains a list of KVStoreCluster.
//
// +kubebuilder:object:root=true
type KVStoreClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KVStoreCluster `json:"items"`
}
