package alibabacloudslb

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ServerIDAnnotationKey on a pod is the id of its server at the load balancer: eni-...,
	// i-... or eci-....
	ServerIDAnnotationKey = "podops.dev/slb-server-id"

	// instanceIDAnnotationKey is written on pods that run as container instances.
	instanceIDAnnotationKey = "k8s.aliyun.com/eci-instance-id"
)

// Server is the server of a pod at the load balancer.
type Server struct {
	ID   string
	Type ServerType
	// IP is empty for nodes.
	IP string
}

// ServerResolver returns the server of a pod. Its errors name the pod and the remedy. It
// must not change the pod.
type ServerResolver func(ctx context.Context, pod *corev1.Pod) (Server, error)

// ResolveServer returns the resolver that needs no other API: the server of a pod is its
// annotation ServerIDAnnotationKey, or the container instance it runs as, or, for a pod on
// the network of its node, that node. reader reads nodes.
func ResolveServer(reader client.Reader) ServerResolver {
	return func(ctx context.Context, pod *corev1.Pod) (Server, error) {
		for _, key := range []string{ServerIDAnnotationKey, instanceIDAnnotationKey} {
			if id := pod.Annotations[key]; id != "" {
				server, err := newServer(id, pod.Status.PodIP)
				if err != nil {
					return Server{}, fmt.Errorf("pod %s: annotation %s: %w", pod.Name, key, err)
				}
				return server, nil
			}
		}
		if !pod.Spec.HostNetwork {
			return Server{}, fmt.Errorf("pod %s: its server is unknown: set annotation %s to the id of its network interface (eni-...)",
				pod.Name, ServerIDAnnotationKey)
		}
		return nodeServer(ctx, reader, pod)
	}
}

func newServer(id, podIP string) (Server, error) {
	if !isID(id) {
		return Server{}, fmt.Errorf("%q is not the id of a server", bounded(id))
	}
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		return Server{ID: id, Type: ServerECS}, nil
	case "eni":
		return Server{ID: id, Type: ServerENI, IP: podIP}, nil
	case "eci":
		return Server{ID: id, Type: ServerECI, IP: podIP}, nil
	default:
		return Server{}, fmt.Errorf("%q does not begin with eni-, eci- or i-", id)
	}
}

// nodeServer reads the instance from the provider id of the pod's node, which is
// <region>.<instance>.
func nodeServer(ctx context.Context, reader client.Reader, pod *corev1.Pod) (Server, error) {
	if pod.Spec.NodeName == "" {
		return Server{}, fmt.Errorf("pod %s: it has no node yet", pod.Name)
	}
	var node corev1.Node
	if err := reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return Server{}, fmt.Errorf("pod %s: reading its node %s: %w", pod.Name, pod.Spec.NodeName, err)
	}
	providerID := node.Spec.ProviderID
	id := providerID[strings.LastIndex(providerID, ".")+1:]
	if !isID(id) || !strings.HasPrefix(id, "i-") {
		return Server{}, fmt.Errorf("pod %s: spec.providerID of its node %s is %q, want <region>.<instance>: set annotation %s on the pod",
			pod.Name, pod.Spec.NodeName, bounded(providerID), ServerIDAnnotationKey)
	}
	return Server{ID: id, Type: ServerECS}, nil
}
