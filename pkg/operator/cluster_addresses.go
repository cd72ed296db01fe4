package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// refreshEvery is the interval at which the addresses of the API server are read, and the time for which a new address of
	// it may be unknown. Those of nodes are watched.
	refreshEvery = 30 * time.Second

	// refreshTimeout bounds one reading.
	refreshTimeout = 20 * time.Second

	// apiServerService is the Service of the API server, in the namespace default.
	apiServerService = "kubernetes"

	// nodeAddressField is the index of nodes by address.
	nodeAddressField = "status.addresses"
)

// clusterAddresses implements webhookclient.Cluster with the addresses of the nodes and the API
// server, which webhook rules may not reach. It is safe for concurrent use.
type clusterAddresses struct {
	// reader reads the API server, and nodes a cache with the index nodeAddressField.
	reader, nodes client.Reader

	// host is the address at which the manager itself reaches the API server; empty when that is a name.
	host string

	// known is closed once the addresses have been read.
	known chan struct{}

	mu     sync.RWMutex
	server map[netip.Addr]bool // those of the API server; nil before they have been read
	err    error
}

func newClusterAddresses(reader, nodes client.Reader, apiServer string) *clusterAddresses {
	addresses := &clusterAddresses{reader: reader, nodes: nodes, known: make(chan struct{}), err: errors.New("they have not been read yet")}
	if parsed, err := url.Parse(apiServer); err == nil {
		addresses.host = parsed.Hostname()
	}
	return addresses
}

// indexNodes makes the cache watch nodes, indexed by address.
func indexNodes(indexer client.FieldIndexer) error {
	return indexer.IndexField(context.Background(), &corev1.Node{}, nodeAddressField, nodeAddresses)
}

// nodeAddresses returns the addresses of a node, as texts.
func nodeAddresses(object client.Object) []string {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	var texts []string
	for _, address := range node.Status.Addresses {
		for _, parsed := range add(nil, address.Address) {
			texts = append(texts, parsed.String())
		}
	}
	return texts
}

// NeedLeaderElection returns false, because admission checks addresses too.
func (c *clusterAddresses) NeedLeaderElection() bool { return false }

// Start keeps the addresses current until the context ends.
func (c *clusterAddresses) Start(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("webhook-rules").Error(err, "Addresses of the cluster not refreshed")
		}
	}, refreshEvery, 0.2, true)
	return nil
}

// await waits for some time until the addresses have been read: calls fail until then.
func (c *clusterAddresses) await(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-c.known:
	case <-ctx.Done():
	}
}

// Owner implements webhookclient.Cluster.
func (c *clusterAddresses) Owner(address netip.Addr) (string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.server == nil {
		return "", c.err
	}
	if c.server[address] {
		return "of the API server", nil
	}
	var nodes corev1.NodeList // of the cache, which has been filled by now
	err := c.nodes.List(context.Background(), &nodes, client.MatchingFields{nodeAddressField: address.String()}, client.UnsafeDisableDeepCopy)
	if err != nil || len(nodes.Items) == 0 {
		return "", err
	}
	return "of a node of the cluster", nil
}

// Has reports whether an address is known to be that of a node or the API server.
func (c *clusterAddresses) Has(address netip.Addr) bool {
	owner, _ := c.Owner(address.Unmap().WithZone("")) // No address is known before they are read.
	return owner != ""
}

// refresh reads the addresses of the API server, once the cache of nodes has been filled. After an error it keeps the last addresses.
func (c *clusterAddresses) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	addresses, err := c.ofAPIServer(ctx)
	if err == nil {
		err = c.nodes.List(ctx, &corev1.NodeList{}, client.MatchingFields{nodeAddressField: ""}) // waits for the cache
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
		return err
	}
	if c.server == nil {
		close(c.known)
	}
	c.server, c.err = map[netip.Addr]bool{}, nil
	for _, address := range addresses {
		c.server[address] = true
	}
	return nil
}

// ofAPIServer returns the addresses of the API server: that at which the manager reaches it, and those of its Service and endpoints.
func (c *clusterAddresses) ofAPIServer(ctx context.Context) ([]netip.Addr, error) {
	addresses := add(nil, c.host)
	var service corev1.Service
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: apiServerService}, &service); err != nil {
		return nil, fmt.Errorf("getting the Service of the API server: %w", err)
	}
	for _, address := range service.Spec.ClusterIPs {
		addresses = add(addresses, address)
	}
	var slices discoveryv1.EndpointSliceList
	err := c.reader.List(ctx, &slices, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: apiServerService})
	if err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of the API server: %w", err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				addresses = add(addresses, address)
			}
		}
	}
	return addresses, nil
}

// add appends an address unless it is a name.
func add(addresses []netip.Addr, text string) []netip.Addr {
	if address, err := netip.ParseAddr(text); err == nil {
		return append(addresses, address.Unmap().WithZone(""))
	}
	return addresses
}
