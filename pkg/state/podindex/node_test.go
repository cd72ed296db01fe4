package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// node returns a node with a heartbeat.
func node(name string, seconds int64, change func(*corev1.Node)) *rule.Node {
	made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "spot"}}}
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(seconds, 0)}}
	if change != nil {
		change(made)
	}
	return podindex.NewNode(made)
}

// TestNodes has a pod wait on a node: the snapshot has the node, and each change of what rules read is a notification.
func TestNodes(t *testing.T) {
	x := newIndex(t)
	waiting := builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).Obj()
	waiting.Spec.NodeName = "n1"
	x.put(waiting)
	nodes := func(what string, want map[string]*rule.Node) {
		t.Helper()
		if diff := cmp.Diff(want, x.Snapshot("default", nil).Nodes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	nodes("before a node is known", nil)
	x.step(t, "no rule has a module", func() { x.SetNode("n1", node("n1", 1, nil)) })
	x.SetRule(x.customRule("web"))
	x.step(t, "a heartbeat", func() { x.SetNode("n1", node("n1", 2, nil)) })
	ready := map[string]string{"Ready": "True"}
	nodes("a node", map[string]*rule.Node{"n1": {Labels: map[string]string{"pool": "spot"}, Conditions: ready}})
	x.step(t, "another node", func() { x.SetNode("n2", node("n2", 1, nil)) })
	x.step(t, "a cordon", func() { x.SetNode("n1", node("n1", 3, func(n *corev1.Node) { n.Spec.Unschedulable = true })) }, "default")
	x.step(t, "a condition", func() {
		x.SetNode("n1", node("n1", 4, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }))
	}, "default")
	x.step(t, "a label", func() { x.SetNode("n1", node("n1", 5, func(n *corev1.Node) { n.Labels = nil })) }, "default")
	nodes("a node without labels", map[string]*rule.Node{"n1": {Conditions: ready}})
	x.step(t, "it is gone", func() { x.DeleteNode("n1") }, "default")
	x.step(t, "it is gone, once more", func() { x.DeleteNode("n1") })
	nodes("a node that is gone", map[string]*rule.Node{})
}
