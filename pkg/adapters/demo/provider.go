package demo

import (
	"context"
	"maps"
	"sync"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Provider is the part of a load balancer's API that the adapter needs. Services are named
// <namespace>/<name>, real servers like their pods. All methods are safe for concurrent use
// and to repeat: deleting an item that does not exist is no error.
type Provider interface {
	// VIP returns the virtual address of a service; false: it has no virtual address.
	VIP(ctx context.Context, service string) (DemoServiceDetails, bool, error)
	PutVIP(ctx context.Context, service string, vip DemoServiceDetails) error
	DeleteVIP(ctx context.Context, service string) error

	// RealServers returns the real servers of a service by name, in a map that the caller
	// owns.
	RealServers(ctx context.Context, service string) (map[string]resourceconsist.PodEmployeeStatuses, error)
	PutRealServer(ctx context.Context, service, name string, server resourceconsist.PodEmployeeStatuses) error
	DeleteRealServer(ctx context.Context, service, name string) error
}

// DemoResourceProviderClient is a Provider in memory whose changes take effect at once. Its
// zero value is ready for use. It must not be copied.
type DemoResourceProviderClient struct {
	mu      sync.Mutex
	vips    map[string]DemoServiceDetails
	servers map[string]map[string]resourceconsist.PodEmployeeStatuses
}

var _ Provider = &DemoResourceProviderClient{}

// VIP implements Provider.
func (c *DemoResourceProviderClient) VIP(_ context.Context, service string) (DemoServiceDetails, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	vip, has := c.vips[service]
	return vip, has, nil
}

// PutVIP implements Provider.
func (c *DemoResourceProviderClient) PutVIP(_ context.Context, service string, vip DemoServiceDetails) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vips == nil {
		c.vips = map[string]DemoServiceDetails{}
	}
	c.vips[service] = vip
	return nil
}

// DeleteVIP implements Provider.
func (c *DemoResourceProviderClient) DeleteVIP(_ context.Context, service string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.vips, service)
	return nil
}

// RealServers implements Provider.
func (c *DemoResourceProviderClient) RealServers(_ context.Context, service string) (map[string]resourceconsist.PodEmployeeStatuses, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.servers[service]), nil
}

// PutRealServer implements Provider.
func (c *DemoResourceProviderClient) PutRealServer(
	_ context.Context, service, name string, server resourceconsist.PodEmployeeStatuses,
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.servers = map[string]map[string]resourceconsist.PodEmployeeStatuses{}
	}
	if c.servers[service] == nil {
		c.servers[service] = map[string]resourceconsist.PodEmployeeStatuses{}
	}
	c.servers[service][name] = server
	return nil
}

// DeleteRealServer implements Provider.
func (c *DemoResourceProviderClient) DeleteRealServer(_ context.Context, service, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers[service], name)
	if len(c.servers[service]) == 0 {
		delete(c.servers, service)
	}
	return nil
}
