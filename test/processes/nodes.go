package processes

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	nodePrefix = "processes-"
	nodeIP     = "127.0.0.1"

	// The values of a kubelet.
	leaseSeconds  = 40
	renewInterval = 10 * time.Second
	podsPerNode   = "110"
)

// register creates the nodes and keeps their leases.
func (k *Kubelet) register(ctx context.Context) error {
	for n := range k.options.Nodes {
		name := fmt.Sprintf("%s%d", nodePrefix, n)
		k.nodes = append(k.nodes, name)
		_, err := k.client.CoreV1().Nodes().Create(ctx, nodeOf(name, metav1.Now()), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("registering node %s: %w", name, err)
		}
		if err := k.renew(ctx, name); err != nil {
			return err
		}
	}
	k.done.Go(func() { k.renewAll(ctx) })
	return nil
}

func nodeOf(name string, now metav1.Time) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse(podsPerNode),
	}
	condition := func(t corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: status, Reason: "Processes", LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}, {Type: corev1.NodeHostName, Address: name}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue), condition(corev1.NodeMemoryPressure, corev1.ConditionFalse),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse), condition(corev1.NodePIDPressure, corev1.ConditionFalse),
			},
		},
	}
}

func (k *Kubelet) renewAll(ctx context.Context) {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, name := range k.nodes {
			if err := k.renew(ctx, name); err != nil && ctx.Err() == nil {
				k.options.Log.Error(err, "Renewing a lease") // the next renewal is early enough
			}
		}
	}
}

// renew creates or renews the lease of a node.
func (k *Kubelet) renew(ctx context.Context, node string) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &node, LeaseDurationSeconds: ptr.To(int32(leaseSeconds)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renewing the lease of %s: %w", node, err)
	}
	return nil
}

// cordon makes all other nodes unschedulable.
func (k *Kubelet) cordon(ctx context.Context) error {
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range nodes.Items {
		if slices.Contains(k.nodes, node.Name) || node.Spec.Unschedulable {
			continue
		}
		if err := k.setSchedulable(ctx, node.Name, false); err != nil {
			return err
		}
		k.cordoned = append(k.cordoned, node.Name)
	}
	return nil
}

// uncordon undoes cordon. Nodes that no longer exist, with or without their API server, are
// skipped.
func (k *Kubelet) uncordon(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	for _, name := range k.cordoned {
		if err := k.setSchedulable(ctx, name, true); err != nil && !apierrors.IsNotFound(err) {
			k.options.Log.Info("A node stays cordoned", "node", name, "error", err.Error())
		}
	}
	for _, name := range k.nodes {
		if err := k.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			k.options.Log.Info("A node stays registered", "node", name, "error", err.Error())
		}
	}
}

func (k *Kubelet) setSchedulable(ctx context.Context, node string, schedulable bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, !schedulable)
	if _, err := k.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}
