package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Target is a pod that is about to be operated on.
type Target struct {
	Name string
	UID  types.UID
}

// Verdict is whether the operation on a pod may begin, as far as its store is concerned.
type Verdict struct {
	Approved bool

	// Reason is why, for users.
	Reason string
}

// Approval has the verdicts about pods of one store.
type Approval struct {
	// Verdicts are by the name of the pod.
	Verdicts map[string]Verdict

	// Move is the move of leadership that the leader's verdict waits for; nil: none.
	Move *Move

	// Open is true while a verdict waits for another leader, and may soon be another.
	Open bool
}

// Approve decides which pods may be operated on. It depends on the Cluster, the StatefulSet,
// the Members and the Store of the Snapshot; a Cluster that is nil was deleted. A pod is approved when
//
//   - the store is deleted, or has no other member: there is nothing to protect,
//   - it does not lead, another pod leads, and without it a majority of the members with a vote is healthy, or
//   - it is not healthy, and does not lead or has no successor: a repair must not wait.
//
// Each verdict is about one pod: how many pods may be away at a time is for other rules.
func Approve(s Snapshot, targets []Target) Approval {
	a := &approver{Snapshot: s, targets: targets, Approval: Approval{Verdicts: map[string]Verdict{}}}
	for _, pod := range targets {
		a.Verdicts[pod.Name] = a.verdict(pod)
	}
	return a.Approval
}

type approver struct {
	Snapshot
	Approval
	targets []Target
}

func approved(format string, args ...any) Verdict {
	return Verdict{Approved: true, Reason: fmt.Sprintf(format, args...)}
}

func rejected(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...)}
}

func (a *approver) verdict(pod Target) Verdict {
	if a.deleted() {
		return approved("the store is deleted")
	}
	ordinal, known := a.podOrdinal(pod)
	if !known {
		return rejected("pod %s is not known to the operator yet", pod.Name)
	}
	m, leads := a.Members[ordinal], a.Store.Leader == pod.Name
	switch {
	case a.isOnlyMember(pod.Name):
		return approved("pod %s is the only member", pod.Name)
	case !m.healthy() && !leads:
		return approved("pod %s is not healthy, and does not lead", pod.Name)
	}
	if healthy, needed := a.quorumWithout(pod.Name); m.healthy() && healthy < needed {
		return rejected("without pod %s, %d members are healthy, and the store needs %d", pod.Name, healthy, needed)
	}
	switch {
	case leads:
		return a.handOver(ordinal)
	case a.Store.Leader == "":
		a.Open = true
		return rejected("no pod leads")
	default:
		return approved("pod %s leads", a.Store.Leader)
	}
}

// deleted reports whether the store is deleted: its backup is complete, or no backup was requested.
func (a *approver) deleted() bool {
	return a.Cluster == nil || a.Cluster.DeletionTimestamp != nil && (a.StatefulSet == nil || a.StatefulSet.DeletionTimestamp != nil)
}

// podOrdinal returns the ordinal of a pod. A pod with another UID is another pod.
func (a *approver) podOrdinal(pod Target) (int32, bool) {
	for _, ordinal := range a.ordinals() {
		if m := a.Members[ordinal]; m.Pod.Name == pod.Name && m.Pod.UID == pod.UID {
			return ordinal, true
		}
	}
	return 0, false
}

// voters returns the names of the members that count in the quorum: all pods that the cluster has to have, while the
// store does not report them.
func (a *approver) voters() []string {
	if len(a.Store.Voters) > 0 {
		return a.Store.Voters
	}
	var names []string
	for ordinal := range a.Cluster.Spec.Replicas {
		names = append(names, PodName(a.Cluster.Name, ordinal))
	}
	return names
}

// isOnlyMember reports whether the store has no other member, with or without a vote.
func (a *approver) isOnlyMember(name string) bool {
	if len(a.Store.Members) > 0 {
		return slices.Equal(a.Store.Members, []string{name})
	}
	return a.Cluster.Spec.Replicas == 1
}

// quorumWithout returns how many members are healthy and stay when a pod goes, and how many must: a majority. Of two
// members the other must be, although the store does not serve with one.
func (a *approver) quorumWithout(name string) (healthy, needed int) {
	voters := a.voters()
	for _, m := range a.Members {
		if m.Pod.Name != name && m.healthy() && !m.permitted() && slices.Contains(voters, m.Pod.Name) {
			healthy++
		}
	}
	return healthy, min(len(voters)/2+1, len(voters)-1)
}

// handOver moves leadership away from the leader, to a pod on which no operation has begun or is about to: it would
// lead for a short time only.
func (a *approver) handOver(ordinal int32) Verdict {
	name := a.Members[ordinal].Pod.Name
	to := slices.DeleteFunc(a.successors(ordinal), func(other string) bool {
		isTarget := slices.ContainsFunc(a.targets, func(target Target) bool { return target.Name == other })
		return isTarget || a.begun(other) || !slices.Contains(a.voters(), other)
	})
	switch {
	case len(to) > 0:
	case a.Members[ordinal].healthy():
		return rejected("pod %s leads, and no other pod can: each has no vote, is not ready, or is about to be operated on", name)
	default:
		return approved("pod %s is not healthy, and no other pod can lead", name)
	}
	a.Move, a.Open = &Move{From: name, To: to}, true
	return rejected("leadership moves away from pod %s", name)
}

// begun reports whether an operation on a pod has begun.
func (a *approver) begun(name string) bool {
	for _, m := range a.Members {
		if m.Pod.Name == name {
			return m.has(appsv1alpha1.OperatingLabelPrefix)
		}
	}
	return false
}

// permitted reports whether an operation on the pod was permitted: the pod may go at any time.
func (m Member) permitted() bool {
	return m.has(appsv1alpha1.PrepareLabelPrefix) || m.has(appsv1alpha1.OperateLabelPrefix)
}

// has reports whether the pod has a label with a prefix, of any lifecycle.
func (m Member) has(prefix string) bool {
	for key := range m.Pod.Labels {
		if strings.HasPrefix(key, prefix+"/") {
			return true
		}
	}
	return false
}
