package podindex

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// decisions are the PodOperationApprovals of a namespace by workload and name.
type decisions map[appsv1alpha1.ApprovalWorkload]map[string]*appsv1alpha1.PodOperationApproval

// SetApproval adds a PodOperationApproval, and notifies of its namespace if a rule of kind approval is there. The index shares the
// object, which must not be modified afterwards.
func (x *Index) SetApproval(object *appsv1alpha1.PodOperationApproval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespace(object.Namespace)
	if n.approvals == nil {
		n.approvals = decisions{}
	}
	if n.approvals[object.Spec.Workload] == nil {
		n.approvals[object.Spec.Workload] = map[string]*appsv1alpha1.PodOperationApproval{}
	}
	n.approvals[object.Spec.Workload][object.Name] = object
	if n.hasApproval() {
		x.notify(object.Namespace)
	}
}

// DeleteApproval removes a PodOperationApproval.
func (x *Index) DeleteApproval(object *appsv1alpha1.PodOperationApproval) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.namespace(object.Namespace)
	delete(n.approvals[object.Spec.Workload], object.Name)
	if len(n.approvals[object.Spec.Workload]) == 0 {
		delete(n.approvals, object.Spec.Workload)
	}
	x.forgetEmpty(object.Namespace)
	if n.hasApproval() {
		x.notify(object.Namespace)
	}
}

// hasApproval reports whether some rule in the namespace has the kind approval.
func (n *namespace) hasApproval() bool {
	for _, r := range n.rules {
		if r.approval {
			return true
		}
	}
	return false
}

// waitingApprovals returns the decisions about the workloads of the pods that wait; nil without a rule that reads them.
func (n *namespace) waitingApprovals(waiting []rule.Request) map[types.UID]approval.Workload {
	if !n.hasApproval() {
		return nil
	}
	found := map[types.UID]approval.Workload{}
	for _, request := range waiting {
		uid := request.Pod.Owner.UID
		if _, known := found[uid]; known {
			continue
		}
		if owner, known := n.owners[uid]; known && hasRevisions(owner.Kind) {
			found[uid] = n.approvalFor(owner)
		}
	}
	return found
}

// hasRevisions reports whether a kind of workload replaces its pods by pods of a revision that users can approve.
func hasRevisions(kind string) bool {
	return kind == kindDeployment || kind == kindStatefulSet || kind == kindDaemonSet
}

// approvalFor returns the revision of a workload with the decisions about it. A Deployment makes its pods from the newest ReplicaSet: the
// revision is not known while the Deployment has another template. If it is paused, that ReplicaSet counts; of the
// strategy Recreate, whose next ReplicaSet follows only when the pods are gone, the template of the Deployment.
func (n *namespace) approvalFor(owner Owner) approval.Workload {
	found := approval.Workload{Kind: owner.Kind, Name: owner.Name, Revision: owner.Template, Hash: owner.UpdateRevision, Author: owner.Author}
	newest := n.owners[n.newestReplicaSet[owner.UID]]
	switch {
	case owner.Kind != kindDeployment:
	case newest.Template == owner.Template:
		found.Hash = revisionHash(newest.TemplateLabels)
	case owner.Paused:
		found.Revision, found.Hash, found.Author = newest.Template, revisionHash(newest.TemplateLabels), ""
	case !owner.Recreates:
		found.Revision, found.Author = "", ""
	}
	if !owner.Processed {
		found.Revision = ""
	}
	workload := appsv1alpha1.ApprovalWorkload{Kind: owner.Kind, Name: owner.Name}
	found.Decisions = slices.Collect(maps.Values(n.approvals[workload]))
	return found
}
