package doctor

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// longOnNode is how long a node may wait for a pod before that is a finding: node deadlines are minutes.
const longOnNode = 5 * time.Minute

func nodeChecks() []check {
	return []check{{id: "node-waits", reads: []Source{SourceNodes, SourcePods}, find: (*inspection).nodeWaits}}
}

// nodeWaits names the nodes that are to be emptied and have waited for long for pods that rules withhold. PodOps knows no
// deadline of a node: Karpenter keeps it in the NodeClaim, and other programs nowhere.
func (in *inspection) nodeWaits() []Finding {
	held := map[string][]*corev1.Pod{}
	for _, pods := range in.pods {
		for _, pod := range pods {
			if !heldSince(pod).IsZero() {
				held[pod.Spec.NodeName] = append(held[pod.Spec.NodeName], pod)
			}
		}
	}
	var findings []Finding
	for i := range in.Nodes {
		node := &in.Nodes[i]
		pods := held[node.Name]
		state := leaving(node)
		if state == "" || len(pods) == 0 {
			continue
		}
		first := slices.MinFunc(pods, func(a, b *corev1.Pod) int { return heldSince(a).Compare(heldSince(b)) })
		if in.now.Sub(heldSince(first)) < min(in.long, longOnNode) {
			continue
		}
		findings = append(findings, Finding{
			Level: LevelWarning, Object: object("node", "", node.Name),
			Text: fmt.Sprintf("%s, and has waited for %s for pods whose rules withhold their removal: %d, the first is %s/%s%s",
				state, age(in.now, heldSince(first)), len(pods), first.Namespace, first.Name, requestedBy(first)),
			Remedy: explain(first) + ", and bound the wait by maxHold: docs/nodes.md",
		})
	}
	return findings
}

// heldSince returns since when rules withhold the removal of a pod; the zero time if they do not.
func heldSince(pod *corev1.Pod) time.Time {
	for _, waiting := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(pod)) {
		at, ok := lifecycle.ParseTime(waiting.Attempt)
		if ok && waiting.ID == appsv1alpha1.PodDeleteID && waiting.Stage == appsv1alpha1.StagePreCheck {
			return at
		}
	}
	return time.Time{}
}

func requestedBy(pod *corev1.Pod) string {
	record, ok := deferreddelete.Pending(pod)
	if !ok || record.User == "" {
		return ""
	}
	return ", as " + record.User + " requests"
}

// Taints of nodes that a program is about to delete.
const (
	taintKarpenter  = "karpenter.sh/disrupted"
	taintAutoscaler = "ToBeDeletedByClusterAutoscaler"
)

// leaving returns why the pods of a node are to go, empty for a node that takes pods.
func leaving(node *corev1.Node) string {
	for _, taint := range node.Spec.Taints {
		if taint.Key == taintKarpenter || taint.Key == taintAutoscaler {
			return "has the taint " + taint.Key
		}
	}
	switch {
	case node.DeletionTimestamp != nil:
		return "is being deleted"
	case node.Spec.Unschedulable:
		return "is cordoned"
	default:
		return ""
	}
}
