package kubelet

import (
	"context"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
)

// podsPerNode is the default of a kubelet's --max-pods. Every pod has its own address, so
// it must stay below the size of a node's pod range (a /24).
const podsPerNode = "110"

// nodeConditions are the conditions that a healthy kubelet reports.
var nodeConditions = []corev1.NodeCondition{
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
}

// object returns the Node with which the kubelet of n registers. CPU and memory are far
// beyond any machine, so that only the number of pods limits a node.
func (n Node) object(now metav1.Time) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse(podsPerNode),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   n.Name,
				corev1.LabelOSStable:   runtime.GOOS,
				corev1.LabelArchStable: runtime.GOARCH,
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.IP},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: runtime.GOARCH, OperatingSystem: runtime.GOOS,
				KubeletVersion: version.Get().GitVersion, ContainerRuntimeVersion: "simulated://0",
			},
		},
	}
	node.Status = Heartbeat(node, now)
	return node
}

// register creates the Node object, or uses an existing object.
func (n Node) register(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Nodes().Create(ctx, n.object(metav1.Now()), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("registering node %s: %w", n.Name, err)
	}
	return nil
}

// Heartbeat returns the status of a node with a healthy kubelet: conditions reported at
// now, with lastTransitionTime kept unless the status of the condition changes. It does
// not modify node.
func Heartbeat(node *corev1.Node, now metav1.Time) corev1.NodeStatus {
	status := *node.Status.DeepCopy()
	for _, condition := range nodeConditions {
		condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
		found := false
		for i, previous := range status.Conditions {
			if previous.Type != condition.Type {
				continue
			}
			if previous.Status == condition.Status {
				condition.LastTransitionTime = previous.LastTransitionTime
			}
			status.Conditions[i] = condition
			found = true
		}
		if !found {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	return status
}
