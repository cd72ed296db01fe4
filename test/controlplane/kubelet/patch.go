package kubelet

import (
	"encoding/json"
	"fmt"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// stageFuncs returns the functions that the stage files call in their templates: each takes
// the object of the stage and returns the strategic merge patch, in JSON, that a kubelet
// sends to its status.
func (n Node) stageFuncs(pool *addresses, now func() metav1.Time) template.FuncMap {
	podStep := func(step func(*corev1.Pod, metav1.Time) corev1.PodStatus) func(any) (string, error) {
		return func(object any) (string, error) {
			var pod corev1.Pod
			if err := convert(object, &pod); err != nil {
				return "", err
			}
			return podPatch(&pod, step(&pod, now()))
		}
	}
	return template.FuncMap{
		"Created": func(object any) (string, error) {
			var pod corev1.Pod
			if err := convert(object, &pod); err != nil {
				return "", err
			}
			podIP := n.IP
			if !pod.Spec.HostNetwork {
				var err error
				if podIP, err = pool.take(pod.UID); err != nil {
					return "", err
				}
			}
			return podPatch(&pod, Created(&pod, n.IP, podIP, now()))
		},
		"Started":    podStep(Started),
		"Restarting": podStep(Restarting),
		"Synced":     podStep(Synced),
		"Stopped":    podStep(Stopped),
		"Heartbeat": func(object any) (string, error) {
			var node corev1.Node
			if err := convert(object, &node); err != nil {
				return "", err
			}
			return nodePatch(&node, Heartbeat(&node, now()))
		},
	}
}

// podPatch returns the patch that a kubelet sends: the difference of the two statuses, with
// the UID as a precondition so that it never applies to a later pod of the same name
// (k8s.io/kubernetes/pkg/util/pod, PatchPodStatus).
func podPatch(pod *corev1.Pod, status corev1.PodStatus) (string, error) {
	before := corev1.Pod{Status: pod.Status}
	after := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status}
	return twoWay(before, after, corev1.Pod{})
}

func nodePatch(node *corev1.Node, status corev1.NodeStatus) (string, error) {
	return twoWay(corev1.Node{Status: node.Status}, corev1.Node{Status: status}, corev1.Node{})
}

func twoWay(before, after, schema any) (string, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return "", fmt.Errorf("encoding the old status: %w", err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		return "", fmt.Errorf("encoding the new status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, schema)
	if err != nil {
		return "", fmt.Errorf("comparing %s: %w", types.StrategicMergePatchType, err)
	}
	return string(patch), nil
}

// convert decodes an object that a template handles as maps into its type.
func convert(object, typed any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the object of a stage: %w", err)
	}
	if err := json.Unmarshal(data, typed); err != nil {
		return fmt.Errorf("decoding the object of a stage: %w", err)
	}
	return nil
}
