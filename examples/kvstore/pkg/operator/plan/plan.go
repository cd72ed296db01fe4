package plan

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// Decision is the next step of a cluster. Its fields are carried out in their order; each is safe to
// repeat, and the first that fails ends the round. The zero value of a field requests nothing.
type Decision struct {
	// AddFinalizer adds kvstorev1.Finalizer. Nothing else is decided with it.
	AddFinalizer bool

	// KeepDependents removes the finalizer foregroundDeletion, by which the garbage collector deletes the dependents. Nothing
	// else is decided with it.
	KeepDependents bool

	// Status is written if it differs from the status of the cluster: before the steps that it
	// records.
	Status kvstorev1.KVStoreClusterStatus

	// Undo cancels lifecycles of pods that are not operated on any more.
	Undo []PodOperation

	// Begin begins a lifecycle.
	Begin *PodOperation

	// ClearRole are pods that lose kvstorev1.RoleLabelKey, and SetRole is the pod that gets it.
	ClearRole []*corev1.Pod
	SetRole   *corev1.Pod

	// MoveLeader moves the leadership of the store.
	MoveLeader *Move

	// RemoveMember removes the pod of this name from the members of the store.
	RemoveMember string

	// Observe requests an observation of the store that is fresh.
	Observe bool

	// Service and StatefulSet are created, or updated if they have a resourceVersion.
	Service     *corev1.Service
	StatefulSet *appsv1.StatefulSet

	// DeletePod deletes a pod, by its UID.
	DeletePod *corev1.Pod

	// CreateJob creates a Job, and DeleteJobs deletes Jobs.
	CreateJob  *batchv1.Job
	DeleteJobs []*batchv1.Job

	// DeleteStatefulSet deletes the StatefulSet, and DeleteClaims deletes PersistentVolumeClaims.
	DeleteStatefulSet *appsv1.StatefulSet
	DeleteClaims      []*corev1.PersistentVolumeClaim

	// RemoveFinalizer removes kvstorev1.Finalizer.
	RemoveFinalizer bool

	// Wake is when the time alone leads to another Decision. 0: never.
	Wake time.Duration
}

// PodOperation is an operation on a pod.
type PodOperation struct {
	Pod       *corev1.Pod
	Operation Operation
}

// Move is a move of leadership.
type Move struct {
	// From is the pod that leads. If another pod leads by now, nothing is moved.
	From string

	// To are the pods that may lead. The first that takes leadership gets it.
	To []string
}

// planner computes one Decision.
type planner struct {
	Snapshot
	settings Settings
	now      time.Time

	status   kvstorev1.KVStoreClusterStatus
	decision Decision

	// progress is the operation in progress, and its present step; empty without an operation.
	progress progress

	// migration is the present step of a migration; empty without one.
	migration progress

	// target is the pod that is operated on, and its operation: its lifecycle is not undone.
	target    int32
	operation Operation
}

// progress is a reason and a message for conditions.
type progress struct{ reason, message string }

// Decide returns the next step of the cluster. It does not modify the Snapshot. With a Decision carried
// out and nothing else changed, repeated calls come to a Decision that writes nothing.
func Decide(s Snapshot, settings Settings, now time.Time) Decision {
	p := &planner{Snapshot: s, settings: settings, now: now, status: *s.Cluster.Status.DeepCopy()}
	guarded := slices.Contains(s.Cluster.Finalizers, kvstorev1.Finalizer)
	switch {
	case s.Cluster.DeletionTimestamp != nil && guarded:
		p.terminate()
	case s.Cluster.DeletionTimestamp != nil:
		// The deletion waits for finalizers of others.
	case !guarded:
		p.decision.AddFinalizer = true
	default:
		p.operate()
	}
	p.decision.Status = p.status
	return p.decision
}

// operate keeps a cluster that is not being deleted as its spec requests.
func (p *planner) operate() {
	if taken := p.foreign(); taken != "" {
		p.progress = progress{kvstorev1.ReasonNameTaken, taken + " has another owner"}
		p.report()
		return
	}
	p.finishCreation()
	p.advance()
	replicas := p.replicas()
	p.objects(replicas)
	p.cancel(replicas)
	p.dropMember(replicas)
	p.labelLeader()
	p.report()
}

// finishCreation records the version once every replica has been ready with it.
func (p *planner) finishCreation() {
	want := p.Cluster.Spec
	if p.status.CurrentVersion != "" || int32(len(p.Members)) < want.Replicas {
		return
	}
	for _, m := range p.Members {
		if !m.ready() || m.version() != want.Version {
			return
		}
	}
	p.status.CurrentVersion = want.Version
}

// cancel ends lifecycles that an earlier decision has begun on pods that are not operated on any more,
// but for pods that leave.
func (p *planner) cancel(replicas int32) {
	for _, ordinal := range p.ordinals() {
		if ordinal >= replicas {
			continue
		}
		m := p.Members[ordinal]
		for _, operation := range slices.Sorted(maps.Keys(m.Permissions)) {
			current := p.operation == operation && p.target == ordinal
			if m.Permissions[operation].Begun && !current && !m.terminating() {
				p.decision.Undo = append(p.decision.Undo, PodOperation{m.Pod, operation})
			}
		}
	}
}

// labelLeader keeps the label of the leader on the pod that leads. While no leader is known, the
// labels stay.
func (p *planner) labelLeader() {
	if p.Store.Leader == "" {
		return
	}
	for _, ordinal := range p.ordinals() {
		m := p.Members[ordinal]
		labelled := m.Pod.Labels[kvstorev1.RoleLabelKey] != ""
		leads := m.Pod.Name == p.Store.Leader
		switch {
		case m.terminating():
		case labelled && !leads:
			p.decision.ClearRole = append(p.decision.ClearRole, m.Pod)
		case leads && !labelled:
			p.decision.SetRole = m.Pod
		}
	}
}

// wake requests another decision after a delay.
func (p *planner) wake(after time.Duration) {
	if after > 0 && (p.decision.Wake == 0 || after < p.decision.Wake) {
		p.decision.Wake = after
	}
}
