package plan

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
)

// retryDelay is the time after which a Job that failed is repeated, where a step waits for it.
const retryDelay = time.Minute

// replicas returns the number of the StatefulSet's replicas. It rises at once. It falls by one pod at a
// time: PodOps allows its removal, it does not lead, and the store has removed it from its members.
func (p *planner) replicas() int32 {
	if p.upgrading() {
		return p.status.Upgrade.Replicas
	}
	want := p.Cluster.Spec.Replicas
	if p.StatefulSet == nil {
		return want
	}
	have := *p.StatefulSet.Spec.Replicas
	if name, ok := p.leaving(have); ok && have < want {
		p.progress = progress{kvstorev1.ReasonScalingIn, fmt.Sprintf("pod %s is removed", name)}
		return have
	}
	if have <= want && !p.removing(have-1) {
		return want
	}
	return p.scaleIn(have, want)
}

// scaleIn takes the removal of the highest pod one step further.
func (p *planner) scaleIn(have, want int32) int32 {
	ordinal := have - 1
	name := PodName(p.Cluster.Name, ordinal)
	m, exists := p.Members[ordinal]
	leaving := exists && !m.terminating()
	if leaving && have > want && !m.Permissions[ScaleIn].Begun && !p.isBackedUpForScaleIn() {
		return have
	}
	if leaving && have > want && !p.mayOperate(ordinal, ScaleIn) {
		return have
	}
	p.target, p.operation = ordinal, ScaleIn
	if !p.storeKnown() {
		p.decision.Observe = true
		p.progress = progress{kvstorev1.ReasonScalingIn, fmt.Sprintf("pod %s waits until the members of the store are known", name)}
		return have
	}
	member := slices.Contains(p.Store.Members, name)
	switch {
	case member && have <= want: // scaled out again in time
		p.operation = ""
		return want
	case member:
		p.decision.RemoveMember = name
		p.progress = progress{kvstorev1.ReasonScalingIn, fmt.Sprintf("pod %s waits until it is no member of the store", name)}
		return have
	default:
		p.progress = progress{kvstorev1.ReasonScalingIn, fmt.Sprintf("pod %s is removed", name)}
		return ordinal
	}
}

// isBackedUpForScaleIn reports whether a scale-in may begin: its backup is complete, or the spec requests none. A change of the spec
// begins another backup, and so does the time after a backup that failed.
func (p *planner) isBackedUpForScaleIn() bool {
	if !p.Cluster.Spec.BackupBeforeScaleIn {
		return true
	}
	name := fmt.Sprintf("%s-scale-in-%d", p.Cluster.Name, p.Cluster.Generation)
	job, exists := p.Jobs[name]
	result, message := readJobResult(job)
	p.progress = progress{kvstorev1.ReasonBackupRunning, "Job " + name + " writes the backup before the scale-in"}
	switch {
	case exists && result == jobComplete:
		return true
	case exists && result == jobFailed:
		p.progress = progress{kvstorev1.ReasonBackupFailing, fmt.Sprintf("the backup before the scale-in has failed: Job %s: %s", name, message)}
		p.retry(job)
	case !exists && !p.hasHealthyMember():
		p.progress = progress{kvstorev1.ReasonWaitingForReplicas, "the backup before the scale-in waits for a member of the store that is healthy"}
	case !exists:
		p.decision.CreateJob = p.backupJob(name)
		p.decision.CreateJob.Spec.TTLSecondsAfterFinished = ptr.To(int32(checkTTLSeconds))
	}
	return false
}

// retry deletes a Job that failed once its delay has passed, so that it is created again.
func (p *planner) retry(job *batchv1.Job) {
	if left := retryDelay - p.now.Sub(finishedAt(job)); left > 0 {
		p.wake(left)
	} else if job.DeletionTimestamp == nil {
		p.decision.DeleteJobs = append(p.decision.DeleteJobs, job)
	}
}

// dropMember removes from the store a member beyond the replicas that has no pod: a pod that joins the store after the
// observation that scaleIn relies on leaves it. It takes one of the few places of members, and with a vote it
// counts in the quorum.
func (p *planner) dropMember(replicas int32) {
	if p.decision.MoveLeader != nil || p.decision.RemoveMember != "" {
		return
	}
	for _, name := range p.Store.Members {
		ordinal, named := Ordinal(p.Cluster.Name, name)
		if _, exists := p.Members[ordinal]; !named || exists || ordinal < max(replicas, p.Cluster.Spec.Replicas) {
			continue
		}
		if !p.storeKnown() {
			p.decision.Observe = true
			return
		}
		p.decision.RemoveMember = name
		return
	}
}

// removing reports whether the removal of the pod was allowed, so that the store may have removed it from
// its members. It does not come back with its data: the removal is finished first, even if the cluster
// is scaled out meanwhile.
func (p *planner) removing(ordinal int32) bool {
	m, exists := p.Members[ordinal]
	return exists && !m.terminating() && m.Permissions[ScaleIn].Allowed
}

// leaving returns a pod beyond the replicas whose removal was allowed.
func (p *planner) leaving(replicas int32) (string, bool) {
	for _, ordinal := range p.ordinals() {
		if m := p.Members[ordinal]; ordinal >= replicas && m.Permissions[ScaleIn].Allowed {
			return m.Pod.Name, true
		}
	}
	return "", false
}

// storeKnown reports whether the store has a leader, and the observation of it is fresh.
func (p *planner) storeKnown() bool {
	return p.Store.Leader != "" && p.now.Sub(p.Store.At) <= LeaderFreshness
}
