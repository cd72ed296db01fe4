package podindex

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// NewNode returns what rules read of a node.
func NewNode(object *corev1.Node) *rule.Node {
	node := &rule.Node{Labels: object.Labels, Unschedulable: object.Spec.Unschedulable, Conditions: map[string]string{}}
	for _, condition := range object.Status.Conditions {
		node.Conditions[string(condition.Type)] = string(condition.Status)
	}
	return node
}

// SetNode adds or replaces a node. If it changed, SetNode notifies the namespaces that have a waiting pod on it and a rego rule.
// The index shares the node, which must not be modified afterwards.
func (x *Index) SetNode(name string, node *rule.Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.nodes[name]; known != nil && known.Unschedulable == node.Unschedulable &&
		maps.Equal(known.Labels, node.Labels) && maps.Equal(known.Conditions, node.Conditions) {
		return
	}
	x.nodes[name] = node
	x.notifyNode(name)
}

// DeleteNode removes a node.
func (x *Index) DeleteNode(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.nodes[name]; known {
		delete(x.nodes, name)
		x.notifyNode(name)
	}
}

func (x *Index) notifyNode(node string) {
	for name, namespace := range x.namespaces {
		if namespace.custom() && namespace.waitsOn(node) {
			x.notify(name)
		}
	}
}

// waitsOn reports whether a pod on a node waits.
func (n *namespace) waitsOn(node string) bool {
	return slices.ContainsFunc(n.waiting.ordered().requests, func(request rule.Request) bool { return request.Pod.Node == node })
}

// waitingNodes returns the known nodes of requests.
func (x *Index) waitingNodes(requests []rule.Request) map[string]*rule.Node {
	if len(x.nodes) == 0 {
		return nil
	}
	found := map[string]*rule.Node{}
	for _, request := range requests {
		if node, known := x.nodes[request.Pod.Node]; known {
			found[request.Pod.Node] = node
		}
	}
	return found
}
