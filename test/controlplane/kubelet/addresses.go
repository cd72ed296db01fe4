package kubelet

import (
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// addresses allocates the pod addresses of one node, one for each UID, on any number of
// requests. kwok's own pools (PodIPWith in its templates) give an address twice when the
// first two pods of a node are created at once, and a new address each time a template
// is rendered. It is safe for concurrent use.
type addresses struct {
	pods netip.Prefix

	mu     sync.Mutex // guards the fields below
	next   netip.Addr // where the search continues: addresses are reused late
	byPod  map[types.UID]netip.Addr
	inUse  map[netip.Addr]bool
	unused netip.Addr // the node's own
}

// newAddresses returns the pool of a node whose own address lies in the range.
func newAddresses(n Node) (*addresses, error) {
	pods, err := netip.ParsePrefix(n.PodCIDR)
	if err != nil {
		return nil, fmt.Errorf("reading the pod range: %w", err)
	}
	own, err := netip.ParseAddr(n.IP)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the node: %w", err)
	}
	return &addresses{
		pods: pods.Masked(), next: pods.Masked().Addr(), unused: own,
		byPod: map[types.UID]netip.Addr{}, inUse: map[netip.Addr]bool{},
	}, nil
}

// take returns the address of the pod with this UID.
func (a *addresses) take(pod types.UID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.byPod[pod]; ok {
		return address.String(), nil
	}
	for range 1 << (32 - a.pods.Bits()) {
		a.next = a.next.Next()
		if !a.pods.Contains(a.next) {
			a.next = a.pods.Addr() // the address of the range itself is never a pod's
			continue
		}
		if a.next != a.unused && !a.inUse[a.next] {
			a.hold(pod, a.next)
			return a.next.String(), nil
		}
	}
	return "", fmt.Errorf("all addresses in %s are taken", a.pods)
}

// release releases the address of a deleted pod.
func (a *addresses) release(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inUse, a.byPod[pod])
	delete(a.byPod, pod)
}

// learn marks the addresses of existing pods as used.
func (a *addresses) learn(pods []corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err == nil && a.pods.Contains(address) && address != a.unused {
			a.hold(pod.UID, address)
		}
	}
}

func (a *addresses) hold(pod types.UID, address netip.Addr) {
	a.byPod[pod] = address
	a.inUse[address] = true
}
