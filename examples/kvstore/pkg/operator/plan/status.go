package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// report completes the status: counts, the phase and the conditions. A step that the API server rejects is the progress.
func (p *planner) report() {
	if p.Failure != "" {
		p.progress = progress{kvstorev1.ReasonStepFailed, p.Failure}
		if p.migration.reason != "" {
			p.migration = p.progress
		}
		if p.Cluster.DeletionTimestamp != nil && !p.isBackedUp() {
			p.backingUp(kvstorev1.ReasonStepFailed, p.Failure)
		}
	}
	p.status.ObservedGeneration = p.Cluster.Generation
	p.status.ReadyReplicas = 0
	for _, m := range p.Members {
		if m.ready() {
			p.status.ReadyReplicas++
		}
	}
	p.status.Phase = p.phase()
	p.reportAvailable()
	p.reportUpgraded()
	p.reportSchema()
	p.reportReady()
}

func (p *planner) phase() kvstorev1.ClusterPhase {
	switch {
	case p.Cluster.DeletionTimestamp != nil:
		return kvstorev1.PhaseTerminating
	case p.upgrading(), p.migration.reason != "" && p.status.CurrentVersion != p.Cluster.Spec.Version:
		return kvstorev1.PhaseUpgrading
	case p.status.Upgrade != nil:
		return kvstorev1.PhaseFailed
	case p.status.CurrentVersion == "":
		return kvstorev1.PhaseCreating
	default:
		return kvstorev1.PhaseReady
	}
}

func (p *planner) reportAvailable() {
	message := fmt.Sprintf("%d of %d replicas are ready", p.status.ReadyReplicas, p.Cluster.Spec.Replicas)
	before := meta.FindStatusCondition(p.status.Conditions, kvstorev1.ConditionAvailable)
	switch {
	case 2*p.status.ReadyReplicas > p.Cluster.Spec.Replicas:
		p.condition(kvstorev1.ConditionAvailable, metav1.ConditionTrue, kvstorev1.ReasonQuorumReached, message)
	case before == nil || before.Reason == kvstorev1.ReasonNeverAvailable:
		p.condition(kvstorev1.ConditionAvailable, metav1.ConditionFalse, kvstorev1.ReasonNeverAvailable, message)
	default:
		p.condition(kvstorev1.ConditionAvailable, metav1.ConditionFalse, kvstorev1.ReasonQuorumLost, message)
	}
}

func (p *planner) reportUpgraded() {
	want := p.Cluster.Spec.Version
	u := p.status.Upgrade
	switch {
	case u != nil && u.RollingBack:
		p.condition(kvstorev1.ConditionUpgraded, metav1.ConditionFalse, u.Reason, u.Message)
	case u != nil:
		p.condition(kvstorev1.ConditionUpgraded, metav1.ConditionFalse, progressReason(p.progress, kvstorev1.ReasonReplacingPod),
			fmt.Sprintf("the upgrade from %s to %s is at pod %s", u.FromVersion, u.ToVersion, PodName(p.Cluster.Name, u.Ordinal)))
	case p.status.CurrentVersion == want:
		p.condition(kvstorev1.ConditionUpgraded, metav1.ConditionTrue, kvstorev1.ReasonAsSpecified, "every replica has version "+want)
	default:
		p.condition(kvstorev1.ConditionUpgraded, metav1.ConditionFalse, progressReason(p.progress, kvstorev1.ReasonWaitingForReplicas),
			"no upgrade to version "+want+" has begun")
	}
}

// reportReady reports the conditions of kstatus.
func (p *planner) reportReady() {
	if p.progress.reason == "" && p.status.ReadyReplicas < p.Cluster.Spec.Replicas {
		p.progress = progress{kvstorev1.ReasonWaitingForReplicas,
			fmt.Sprintf("%d of %d replicas are ready", p.status.ReadyReplicas, p.Cluster.Spec.Replicas)}
	}
	if p.progress.reason == "" && (p.upgrading() || p.status.CurrentVersion != p.Cluster.Spec.Version && p.status.Upgrade == nil) {
		p.progress = progress{kvstorev1.ReasonReplacingPod, "the version changes"}
	}
	taken := p.progress.reason == kvstorev1.ReasonNameTaken
	why, failed := p.progress, p.status.Phase == kvstorev1.PhaseFailed
	if failed {
		why = progress{p.status.Upgrade.Reason, p.status.Upgrade.Message}
	}
	p.normal(kvstorev1.ConditionReady, metav1.ConditionTrue, metav1.ConditionFalse, why.reason != "", why)
	p.normal(kvstorev1.ConditionStalled, metav1.ConditionFalse, metav1.ConditionTrue, failed || taken, why)
	p.normal(kvstorev1.ConditionReconciling, metav1.ConditionFalse, metav1.ConditionTrue, p.progress.reason != "" && !taken, p.progress)
}

// normal sets a condition to its normal status, or to the other status if it deviates.
func (p *planner) normal(kind string, normal, otherwise metav1.ConditionStatus, deviates bool, why progress) {
	if deviates {
		p.condition(kind, otherwise, why.reason, why.message)
		return
	}
	p.condition(kind, normal, kvstorev1.ReasonAsSpecified, "the cluster is as its spec requests")
}

// condition sets a condition. Its time changes with its status only.
func (p *planner) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text.Cut(message, maxMessage),
		ObservedGeneration: p.Cluster.Generation, LastTransitionTime: metav1.NewTime(p.now).Rfc3339Copy(),
	})
}

func progressReason(now progress, otherwise string) string {
	if now.reason == "" {
		return otherwise
	}
	return now.reason
}
