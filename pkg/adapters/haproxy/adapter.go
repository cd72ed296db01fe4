package haproxy

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "resource-consist-haproxy"

// maxClients bounds the cached clients. They hold no connections, only slots for commands.
const maxClients = 1000

// Options configures the adapter.
type Options struct {
	// Allowed holds the Runtime APIs that Services may name.
	Allowed Allowed

	// CommandTimeout bounds one command to HAProxy. 0: 5 seconds.
	CommandTimeout time.Duration
}

// Adapter reconciles backends of HAProxy with Services and their pods. It is safe for
// concurrent use.
type Adapter struct {
	client  client.Client
	options Options
	clock   clock.PassiveClock
	drains  drains

	mu      sync.Mutex
	clients map[runtimeapi.Endpoint]*runtimeapi.Client
}

var (
	_ resourceconsist.ReconcileAdapter        = &Adapter{}
	_ resourceconsist.ProviderInstanceOptions = &Adapter{}
)

// New returns an adapter. It reads pods through the client, which should be cached, and
// writes one annotation of Services.
func New(c client.Client, options Options, clk clock.PassiveClock) *Adapter {
	return &Adapter{client: c, options: options, clock: clk, clients: map[runtimeapi.Endpoint]*runtimeapi.Client{}}
}

// GetControllerName implements resourceconsist.ReconcileAdapter.
func (a *Adapter) GetControllerName() string { return ControllerName }

// ProviderInstance implements resourceconsist.ProviderInstanceOptions: an instance is a Runtime API.
func (a *Adapter) ProviderInstance(employer client.Object) string {
	svc, err := service.Of(employer)
	if err != nil {
		return ""
	}
	if used, placed, err := usedLocation(svc); placed && err == nil {
		return used.endpoint.String()
	}
	wanted, err := wantedLocation(svc)
	if err != nil {
		return "" // GetExpectedEmployee reports it
	}
	return wanted.endpoint.String()
}

// GetSelectedEmployeeNames returns the names of the pods that the Service selects.
func (a *Adapter) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	return service.Names(ctx, a.client, employer)
}

// GetExpectedEmployee returns a server for every selected pod that has an address and has
// not ended. An invalid annotation prevents traffic from going on, but not from going off.
func (a *Adapter) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	svc, err := service.Of(employer)
	if err != nil {
		return nil, err
	}
	_, placed, err := usedLocation(svc)
	_, wantedErr := a.wanted(svc)
	if wantedErr != nil && !placed && err == nil {
		return nil, wantedErr
	}
	pods, err := service.Selected(ctx, a.client, employer)
	if err != nil {
		return nil, err
	}
	set, settingsErr := readSettings(svc)
	problem := errors.Join(wantedErr, settingsErr)
	var expected []resourceconsist.IEmployee
	for _, pod := range pods {
		one, err := expectedServer(svc, pod, set, problem)
		if err != nil {
			return nil, err
		}
		if one != nil {
			expected = append(expected, one)
		}
	}
	return expected, nil
}

// GetCurrentEmployee returns the servers that HAProxy has for the Service. A backend that
// is not in the configuration has no servers.
func (a *Adapter) GetCurrentEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, err
	}
	at, placed, err := a.current(service)
	if err != nil || !placed {
		return nil, err
	}
	there, err := a.servers(ctx, service, at)
	if err != nil {
		return nil, err
	}
	// GetExpectedEmployee reports invalid annotations; the drain timeout has its default
	// here.
	set, _ := readSettings(service)
	var current []resourceconsist.IEmployee
	for name, s := range there {
		pod, _ := parseServerName(service, name)
		current = append(current, &server{
			name: name, pod: pod,
			statuses: resourceconsist.PodEmployeeStatuses{Ip: s.Address.Addr().String(), LifecycleReady: s.Serves()},
			extra: ServerStatus{
				On:      s.Serves(),
				Off:     a.isOff(at, s, set.drainTimeout),
				Address: s.Address, Weight: s.Weight,
			},
		})
	}
	return current, nil
}

// isOff reports whether a server takes no new requests, and either has no open requests
// or its drain timeout is over.
func (a *Adapter) isOff(at location, s runtimeapi.Server, limit time.Duration) bool {
	if s.State == runtimeapi.StateReady {
		return false
	}
	elapsed := a.drains.elapsed(at, s.Name, a.clock.Now())
	return s.State == runtimeapi.StateMaint && (s.Sessions == 0 || elapsed >= limit)
}

// servers returns the servers of a Service at a location, by name.
func (a *Adapter) servers(ctx context.Context, service *corev1.Service, at location) (map[string]runtimeapi.Server, error) {
	all, err := a.clientFor(at).Servers(ctx, at.backend)
	if err != nil && !errors.Is(err, runtimeapi.ErrNoBackend) {
		return nil, err
	}
	isOurs := func(name string) bool { _, ours := parseServerName(service, name); return ours }
	for name := range all {
		if !isOurs(name) {
			delete(all, name)
		}
	}
	a.drains.keep(at, isOurs, func(name string) bool { _, there := all[name]; return there })
	return all, nil
}

func (a *Adapter) clientFor(at location) *runtimeapi.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clients[at.endpoint] == nil {
		if len(a.clients) >= maxClients {
			clear(a.clients)
		}
		a.clients[at.endpoint] = runtimeapi.New(at.endpoint, a.options.CommandTimeout)
	}
	return a.clients[at.endpoint]
}
