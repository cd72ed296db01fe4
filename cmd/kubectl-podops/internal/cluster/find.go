package cluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// Find returns the object that a target names; nil if the snapshot does not have it.
func Find(snapshot *clusterstate.Snapshot, target Target) metav1.Object {
	if found := Objects(snapshot, target); len(found) > 0 {
		return found[0]
	}
	return nil
}

// NotFound returns the error for an object that a snapshot does not have: it does not exist, or cannot be read. It names an
// object of another kind that has the name.
func NotFound(snapshot *clusterstate.Snapshot, target Target) error {
	for _, resource := range snapshot.Unreadable {
		if resource.Resource == resourceName(target.Kind) {
			return fmt.Errorf("%s in namespace %s cannot be read: %s", target, snapshot.Namespace, resource.Reason)
		}
	}
	for _, kind := range []Kind{KindDeployment, KindStatefulSet, KindDaemonSet, KindReplicaSet, KindRule, KindPod} {
		if other := (Target{Kind: kind, Name: target.Name}); target.Name != "" && Find(snapshot, other) != nil {
			return fmt.Errorf("%s does not exist in namespace %s, but %s does", target, snapshot.Namespace, other)
		}
	}
	return fmt.Errorf("%s does not exist in namespace %s", target, snapshot.Namespace)
}

// Objects returns the objects of a snapshot that a target names or selects, sorted by name.
func Objects(snapshot *clusterstate.Snapshot, target Target) []metav1.Object {
	switch target.Kind {
	case KindDeployment:
		return chosen(snapshot.Deployments, target)
	case KindStatefulSet:
		return chosen(snapshot.StatefulSets, target)
	case KindDaemonSet:
		return chosen(snapshot.DaemonSets, target)
	case KindReplicaSet:
		return chosen(snapshot.ReplicaSets, target)
	case KindRule:
		return chosen(snapshot.Rules, target)
	default:
		return chosen(snapshot.Pods, target)
	}
}

func chosen[T metav1.Object](all []T, target Target) []metav1.Object {
	var some []metav1.Object
	for _, object := range all {
		if target.Name == "" && target.Selector.Matches(labels.Set(object.GetLabels())) || target.Name == object.GetName() {
			some = append(some, object)
		}
	}
	return some
}

func resourceName(kind Kind) string {
	switch kind {
	case KindDeployment:
		return "deployments"
	case KindStatefulSet:
		return "statefulsets"
	case KindDaemonSet:
		return "daemonsets"
	case KindReplicaSet:
		return "replicasets"
	case KindRule:
		return "podtransitionrules"
	default:
		return "pods"
	}
}
