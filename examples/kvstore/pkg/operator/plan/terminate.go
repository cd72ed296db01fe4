package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Delays between backups that fail.
const (
	firstBackupDelay = 5 * time.Second
	maxBackupDelay   = 5 * time.Minute
)

// terminate deletes a cluster: a backup, then the pods, then their claims, then the finalizer. A StatefulSet of another owner
// stays, with its pods and claims: it had the name before, or was orphaned with the deletion. In a foreground deletion the garbage
// collector would delete the pods before the backup, and what is created for the backup: the order is that of this function, which
// keeps the cluster until its dependents are deleted, too.
func (p *planner) terminate() {
	p.target, p.operation = 0, ""
	switch {
	case slices.Contains(p.Cluster.Finalizers, metav1.FinalizerOrphanDependents):
		return // the garbage collector removes the owner references first
	case slices.Contains(p.Cluster.Finalizers, metav1.FinalizerDeleteDependents):
		p.decision.KeepDependents = true
		return
	case p.StatefulSet != nil && !p.owns(p.StatefulSet):
		p.finish()
		return
	case !p.isBackedUp():
		p.backUp()
	case p.StatefulSet != nil:
		p.progress = progress{kvstorev1.ReasonDeletingPods, "StatefulSet " + p.StatefulSet.Name + " is deleted"}
		if p.StatefulSet.DeletionTimestamp == nil {
			p.decision.DeleteStatefulSet = p.StatefulSet
		}
	case len(p.Members) > 0:
		p.progress = progress{kvstorev1.ReasonDeletingPods, fmt.Sprintf("%d pods are terminating, the first is %s",
			len(p.Members), p.Members[p.ordinals()[0]].Pod.Name)}
	case len(p.Claims) > 0:
		p.progress = progress{kvstorev1.ReasonDeletingClaims, fmt.Sprintf("%d PersistentVolumeClaims are deleted, the first is %s",
			len(p.Claims), p.Claims[0].Name)}
		for _, claim := range p.Claims {
			if claim.DeletionTimestamp == nil {
				p.decision.DeleteClaims = append(p.decision.DeleteClaims, claim)
			}
		}
	default:
		p.finish()
		return
	}
	p.report()
}

// finish lets the cluster go. Its status is reported only if that has failed: otherwise the object goes with this write.
func (p *planner) finish() {
	p.decision.RemoveFinalizer = true
	if p.Failure != "" {
		p.report()
	}
}

// isBackedUp reports whether the deletion may continue: the backup is complete or impossible.
func (p *planner) isBackedUp() bool {
	backedUp := meta.FindStatusCondition(p.status.Conditions, kvstorev1.ConditionBackedUp)
	return backedUp != nil && (backedUp.Status == metav1.ConditionTrue || backedUp.Reason == kvstorev1.ReasonBackupImpossible)
}

// dataDeleted reports whether others have deleted the claims, as a deletion of the namespace does, and the pods that had them.
func (p *planner) dataDeleted() bool {
	for _, m := range p.Members {
		if !m.terminating() {
			return false
		}
	}
	return !slices.ContainsFunc(p.Claims, func(claim *corev1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp == nil })
}

// backUp runs Jobs until one succeeds. Each failure is counted in the status, and the next Job has
// another name.
func (p *planner) backUp() {
	if message, ok := p.nothingToBackUp(); ok {
		p.backedUp(metav1.ConditionTrue, kvstorev1.ReasonBackupSkipped, message)
		p.progress = progress{kvstorev1.ReasonBackupSkipped, message}
		return
	}
	if p.dataDeleted() {
		p.backingUp(kvstorev1.ReasonBackupImpossible, "the PersistentVolumeClaims were deleted before a backup was made")
		return
	}
	if p.StatefulSet == nil && p.foreign() == "" {
		p.objects(p.replicas()) // the backup needs a member that answers
	}
	name := backupName(p.Cluster.Name, p.status.BackupFailures)
	job, exists := p.Jobs[name]
	if !exists && !p.hasHealthyMember() {
		p.backingUp(kvstorev1.ReasonWaitingForReplicas, "the backup waits for a member of the store that is healthy; "+
			"the annotation "+kvstorev1.SkipBackupAnnotationKey+" deletes the data without one")
		return
	}
	result, message := readJobResult(job)
	switch {
	case exists && result == jobComplete:
		p.backedUp(metav1.ConditionTrue, kvstorev1.ReasonBackupComplete, "Job "+name+" has succeeded")
		p.progress = progress{kvstorev1.ReasonBackupComplete, "Job " + name + " has succeeded"}
		return
	case exists && result == jobFailed:
		p.retryBackup(name, finishedAt(job), message)
		return
	case !exists:
		p.decision.CreateJob = p.backupJob(name)
	}
	p.deleteOldBackups(name)
	if p.status.BackupFailures == 0 {
		p.backingUp(kvstorev1.ReasonBackupRunning, "Job "+name+" writes the backup")
		return
	}
	p.backingUp(kvstorev1.ReasonBackupFailing, fmt.Sprintf("the backup has failed %d times; Job %s tries again", p.status.BackupFailures, name))
}

// retryBackup counts a failure once its delay has passed.
func (p *planner) retryBackup(name string, at time.Time, message string) {
	failures := p.status.BackupFailures + 1
	left := backoff.Delay(firstBackupDelay, int(p.status.BackupFailures), maxBackupDelay) - p.now.Sub(at)
	if left > 0 {
		p.wake(left)
	} else {
		p.status.BackupFailures = failures
	}
	p.backingUp(kvstorev1.ReasonBackupFailing, fmt.Sprintf("the backup has failed %d times, last Job %s: %s", failures, name, message))
}

func (p *planner) backingUp(reason, message string) {
	p.progress = progress{reason, message}
	p.backedUp(metav1.ConditionFalse, reason, message)
}

func (p *planner) backedUp(status metav1.ConditionStatus, reason, message string) {
	p.condition(kvstorev1.ConditionBackedUp, status, reason, message)
}

// nothingToBackUp reports whether the deletion continues without a backup, and why. A store that is available now may have
// become so while no operator ran: its status does not report that yet.
func (p *planner) nothingToBackUp() (string, bool) {
	if _, skip := p.Cluster.Annotations[kvstorev1.SkipBackupAnnotationKey]; skip {
		return "the annotation " + kvstorev1.SkipBackupAnnotationKey + " is set", true
	}
	available := meta.FindStatusCondition(p.status.Conditions, kvstorev1.ConditionAvailable)
	never := available == nil || available.Reason == kvstorev1.ReasonNeverAvailable
	return "the store has never acknowledged a write", never && !p.serves()
}

func (p *planner) hasHealthyMember() bool {
	for _, m := range p.Members {
		if m.healthy() {
			return true
		}
	}
	return false
}

// serves reports whether the store may acknowledge writes at present.
func (p *planner) serves() bool {
	healthy := int32(0)
	for _, m := range p.Members {
		if m.healthy() {
			healthy++
		}
	}
	return p.Store.Leader != "" || 2*healthy > p.Cluster.Spec.Replicas
}

// deleteOldBackups deletes the Jobs of backups that failed, but the last.
func (p *planner) deleteOldBackups(name string) {
	last := backupName(p.Cluster.Name, p.status.BackupFailures-1)
	for _, other := range slices.Sorted(maps.Keys(p.Jobs)) {
		if isBackup(p.Jobs[other]) && other != name && other != last && p.Jobs[other].DeletionTimestamp == nil {
			p.decision.DeleteJobs = append(p.decision.DeleteJobs, p.Jobs[other])
		}
	}
}
