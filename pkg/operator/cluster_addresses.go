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
	// refreshEvery is the interval at which the addresses of the cluster are read, and the time
	// for which a new address may be unknown.
	refreshEvery = 30 * time.Second

	// refreshTimeout bounds one reading, and nodesPerPage the memory that it takes.
	refreshTimeout = 20 * time.Second
	nodesPerPage   = 200

	// apiServerService is the Service of the API server, in the namespace default.
	apiServerService = "kubernetes"
)

// clusterAddresses implements webhookclient.Cluster with the addresses of the nodes and of the API
// server, which webhook rules may not reach. It is safe for concurrent use.
type clusterAddresses struct {
	reader client.Reader

	// host is the address at which the manager itself reaches the API server; empty when that is a name.
	host string

	// known is closed once the addresses have been read.
	known chan struct{}

	mu     sync.RWMutex
	owners map[netip.Addr]string
	err    error
}

func newClusterAddresses(reader client.Reader, apiServer string) *clusterAddresses {
	addresses := &clusterAddresses{reader: reader, known: make(chan struct{}), err: errors.New("they have not been read yet")}
	if parsed, err := url.Parse(apiServer); err == nil {
		addresses.host = parsed.Hostname()
	}
	return addresses
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
	if c.owners == nil {
		return "", c.err
	}
	return c.owners[address], nil
}

// Has reports whether an address is known to be that of a node or the API server.
func (c *clusterAddresses) Has(address netip.Addr) bool {
	owner, _ := c.Owner(address.Unmap().WithZone("")) // No address is known before they are read.
	return owner != ""
}

// refresh reads the addresses. After an error it keeps the last addresses.
func (c *clusterAddresses) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	owners := map[netip.Addr]string{}
	err := errors.Join(c.addNodes(ctx, owners), c.addAPIServer(ctx, owners))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
		return err
	}
	if c.owners == nil {
		close(c.known)
	}
	c.owners, c.err = owners, nil
	return nil
}

func (c *clusterAddresses) addNodes(ctx context.Context, owners map[netip.Addr]string) error {
	var nodes corev1.NodeList
	for page := ""; ; page = nodes.Continue {
		nodes = corev1.NodeList{}
		if err := c.reader.List(ctx, &nodes, client.Limit(nodesPerPage), client.Continue(page)); err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		for _, node := range nodes.Items {
			for _, address := range node.Status.Addresses {
				add(owners, address.Address, "of a node of the cluster")
			}
		}
		if nodes.Continue == "" {
			return nil
		}
	}
}

func (c *clusterAddresses) addAPIServer(ctx context.Context, owners map[netip.Addr]string) error {
	const owner = "of the API server"
	add(owners, c.host, owner)
	var service corev1.Service
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: apiServerService}, &service); err != nil {
		return fmt.Errorf("getting the Service of the API server: %w", err)
	}
	for _, address := range service.Spec.ClusterIPs {
		add(owners, address, owner)
	}
	var slices discoveryv1.EndpointSliceList
	err := c.reader.List(ctx, &slices, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: apiServerService})
	if err != nil {
		return fmt.Errorf("listing the EndpointSlices of the API server: %w", err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				add(owners, address, owner)
			}
		}
	}
	return nil
}

// add records an address unless it is a name.
func add(owners map[netip.Addr]string, text, owner string) {
	if address, err := netip.ParseAddr(text); err == nil {
		owners[address.Unmap().WithZone("")] = owner
	}
}
