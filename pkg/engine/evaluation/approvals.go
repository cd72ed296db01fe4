package evaluation

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// approvals are the decisions of users about the workloads of a namespace at one time, by the UID of the workload.
type approvals map[types.UID]workloadApproval

type workloadApproval struct {
	hash           string
	current, other *rule.Approval
}

func newApprovals(workloads map[types.UID]approval.Workload, now time.Time) approvals {
	found := make(approvals, len(workloads))
	for uid, workload := range workloads {
		current, other := workload.Facts(now)
		found[uid] = workloadApproval{hash: workload.Hash, current: current, other: other}
	}
	return found
}

// add returns the requests with the approval of the revision that replaces each pod.
func (a approvals) add(requests []rule.Request) []rule.Request {
	known := slices.Clone(requests)
	for i := range known {
		known[i].Approval = a.find(known[i].Pod)
	}
	return known
}

// find returns the approval of the revision that replaces a pod.
func (a approvals) find(pod *rule.PodFact) *rule.Approval {
	switch workload, ok := a[pod.Owner.UID]; {
	case !ok:
		return &rule.Approval{}
	case workload.hash != "" && workload.hash == pod.Revision.Current:
		return workload.current
	default:
		return workload.other
	}
}

// Approval returns the decisions of users about the revision that replaces a pod; nil without a rule of kind approval in the namespace.
func (o Outcome) Approval(pod *rule.PodFact) *rule.Approval {
	if len(o.approvals) == 0 {
		return nil
	}
	return o.approvals.find(pod)
}
