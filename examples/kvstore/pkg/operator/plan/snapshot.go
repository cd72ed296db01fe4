package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// Settings are the settings of the operator that apply to every cluster.
type Settings struct {
	// Image is the repository of the store's image; its tag is the version.
	Image string

	// BackupTarget is passed to the Job of a backup.
	BackupTarget string

	// ProgressDeadline is how long an upgraded pod may take to become ready.
	ProgressDeadline time.Duration
}

// LeaderFreshness is how long an observation of the store may be the reason for an operation.
const LeaderFreshness = 5 * time.Second

// Operation is the type of an operation on a pod.
type Operation string

// The operations.
const (
	Upgrade Operation = "upgrade"
	ScaleIn Operation = "scale-in"
)

// Snapshot is everything that a Decision depends on. A nil object does not exist.
type Snapshot struct {
	Cluster     *kvstorev1.KVStoreCluster
	Service     *corev1.Service
	StatefulSet *appsv1.StatefulSet

	// Members are the pods of the StatefulSet by ordinal.
	Members map[int32]Member

	// Claims are the PersistentVolumeClaims of the cluster.
	Claims []*corev1.PersistentVolumeClaim

	// Jobs are the Jobs of the cluster by name.
	Jobs map[string]*batchv1.Job

	// Store is the last report of the store.
	Store Observation

	// Failure is why the step of the last Decision was not taken; empty if it was, or there was none.
	Failure string
}

// Permission is how far the lifecycle of an operation is on a pod.
type Permission struct {
	// Begun is true from Begin until Undo or Finish.
	Begun bool

	// Allowed is true when the operation may be carried out.
	Allowed bool
}

// Member is a pod of the store.
type Member struct {
	Pod *corev1.Pod

	// Permissions are the lifecycles of this operator on the pod.
	Permissions map[Operation]Permission
}

// Observation is the state of the store as its members report it. The zero value is unknown.
type Observation struct {
	// At is when it was observed.
	At time.Time

	// Leader is the name of the pod that leads; empty if no member knows.
	Leader string

	// Term is the term in which it leads: a store has one leader in each.
	Term uint64

	// Members are the names of the pods that belong to the store, and Voters are those of them that count in its
	// quorum: a new member has no vote at first.
	Members []string
	Voters  []string
}

// terminating reports whether the pod is being deleted.
func (m Member) terminating() bool { return m.Pod.DeletionTimestamp != nil }

// version returns the version that the pod runs.
func (m Member) version() string { return imageVersion(m.Pod.Spec) }

// imageVersion returns the tag of the store's image. An image with a digest was written by an operation that restarts the
// container: its tag may be any, and the version is that of the arguments, which no client can change. Empty without a version.
func imageVersion(spec corev1.PodSpec) string {
	for _, container := range spec.Containers {
		if container.Name != ContainerName {
			continue
		}
		if !strings.Contains(container.Image, "@") {
			return container.Image[strings.LastIndex(container.Image, ":")+1:]
		}
		for _, arg := range container.Args {
			if version, ok := strings.CutPrefix(arg, versionArg); ok {
				return version
			}
		}
	}
	return ""
}

// ready reports whether the pod is Ready, and stays.
func (m Member) ready() bool { return !m.terminating() && m.condition(corev1.PodReady) }

// healthy reports whether the store runs in the pod. A pod that PodOps takes off traffic is still
// healthy: it counts in the quorum.
func (m Member) healthy() bool { return !m.terminating() && m.condition(corev1.ContainersReady) }

// inService reports whether the pod is Ready and PodOps has put it back into service.
func (m Member) inService() bool {
	_, available := m.Pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return m.ready() && available
}

func (m Member) condition(kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(m.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// ordinals returns the ordinals of the members, ascending.
func (s Snapshot) ordinals() []int32 { return slices.Sorted(maps.Keys(s.Members)) }

// owns reports whether the cluster controls an object.
func (s Snapshot) owns(object metav1.Object) bool { return metav1.IsControlledBy(object, s.Cluster) }

// foreign returns the kind and name of an object that has a name of this cluster and another owner.
func (s Snapshot) foreign() string {
	switch {
	case s.Service != nil && !s.owns(s.Service):
		return "Service " + s.Service.Name
	case s.StatefulSet != nil && !s.owns(s.StatefulSet):
		return "StatefulSet " + s.StatefulSet.Name
	default:
		return ""
	}
}

// PodName returns the name of the pod with an ordinal.
func PodName(cluster string, ordinal int32) string { return fmt.Sprintf("%s-%d", cluster, ordinal) }
