package demo_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
)

func TestTheAdapterConforms(t *testing.T) {
	adaptertest.Run(t, adaptertest.Config{
		New: func(testing.TB) adaptertest.Fixture {
			faults := &faulty{inner: &demo.DemoResourceProviderClient{}, mended: make(chan struct{})}
			cluster := adaptertest.NewServiceCluster(scheme.Scheme)
			return adaptertest.Fixture{Adapter: demo.New(cluster.Client, faults), Cluster: cluster, Provider: hooks{faults}}
		},
		Ops: []adaptertest.Op{
			adaptertest.ReadEmployer, adaptertest.CreateEmployer, adaptertest.DeleteEmployer,
			adaptertest.ReadEmployees, adaptertest.CreateEmployees, adaptertest.UpdateEmployees, adaptertest.DeleteEmployees,
		},
		Without: map[adaptertest.Kind]string{
			adaptertest.Weights:    "the weight of the manual's demo is fixed",
			adaptertest.Sessions:   "the manual's provider has no sessions",
			adaptertest.LateEffect: "changes of the manual's provider take effect at once",
			adaptertest.StaleReads: "the manual's provider answers with the current state",
			adaptertest.Foreign:    "the manual's provider keeps real servers of one client",
			adaptertest.Moves:      "the manual's real servers have neither ports nor weights that change",
			adaptertest.RetryAfter: "the manual's provider has no limit",
		},
	})
}

var (
	errRefused   = errors.New("refused")
	errThrottled = errors.New("too many requests")
)

// faulty is a provider between the adapter and the real one.
type faulty struct {
	mu     sync.Mutex
	inner  *demo.DemoResourceProviderClient
	faults []adaptertest.Fault
	mended chan struct{}
	calls  int
}

// request calls do, unless a fault applies.
func (f *faulty) request(ctx context.Context, op adaptertest.Op, name string, do func(demo.Provider) error) error {
	f.mu.Lock()
	f.calls++
	inner, faults, mended := f.inner, slices.Clone(f.faults), f.mended
	f.mu.Unlock()
	var lost error
	for _, fault := range faults {
		switch {
		case fault.Kind == adaptertest.Throttle:
			return errThrottled
		case fault.Op != op:
		case fault.Kind == adaptertest.Fail, fault.Kind == adaptertest.FailOne && fault.Employee == name:
			return errRefused
		case fault.Kind == adaptertest.LostReply:
			lost = errRefused
		case fault.Kind == adaptertest.Hang:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-mended:
			}
		}
	}
	return errors.Join(do(inner), lost)
}

func (f *faulty) VIP(ctx context.Context, service string) (vip demo.DemoServiceDetails, has bool, err error) {
	err = f.request(ctx, adaptertest.ReadEmployer, "", func(p demo.Provider) (err error) {
		vip, has, err = p.VIP(ctx, service)
		return err
	})
	return vip, has, err
}

func (f *faulty) PutVIP(ctx context.Context, service string, vip demo.DemoServiceDetails) error {
	return f.request(ctx, adaptertest.CreateEmployer, "", func(p demo.Provider) error { return p.PutVIP(ctx, service, vip) })
}

func (f *faulty) DeleteVIP(ctx context.Context, service string) error {
	return f.request(ctx, adaptertest.DeleteEmployer, "", func(p demo.Provider) error { return p.DeleteVIP(ctx, service) })
}

func (f *faulty) RealServers(ctx context.Context, service string) (servers map[string]resourceconsist.PodEmployeeStatuses, err error) {
	err = f.request(ctx, adaptertest.ReadEmployees, "", func(p demo.Provider) (err error) {
		servers, err = p.RealServers(ctx, service)
		return err
	})
	return servers, err
}

// PutRealServer creates or updates, depending on whether the server exists.
func (f *faulty) PutRealServer(ctx context.Context, service, name string, server resourceconsist.PodEmployeeStatuses) error {
	there, err := f.inner.RealServers(ctx, service)
	if err != nil {
		return err
	}
	op := adaptertest.CreateEmployees
	if _, has := there[name]; has {
		op = adaptertest.UpdateEmployees
	}
	return f.request(ctx, op, name, func(p demo.Provider) error { return p.PutRealServer(ctx, service, name, server) })
}

func (f *faulty) DeleteRealServer(ctx context.Context, service, name string) error {
	return f.request(ctx, adaptertest.DeleteEmployees, name, func(p demo.Provider) error { return p.DeleteRealServer(ctx, service, name) })
}

// hooks implements adaptertest.Provider.
type hooks struct{ *faulty }

func (h hooks) Traffic(t testing.TB, employer string) map[string]adaptertest.Traffic {
	t.Helper()
	servers, err := h.inner.RealServers(t.Context(), "default/"+employer)
	if err != nil {
		t.Fatal(err)
	}
	traffic := map[string]adaptertest.Traffic{}
	for name, statuses := range servers {
		extra, ok := statuses.ExtraStatus.(demo.PodExtraStatus)
		if !ok {
			t.Fatalf("real server %s has a %T", name, statuses.ExtraStatus)
		}
		traffic[name] = adaptertest.Traffic{On: extra.TrafficOn, Weight: extra.TrafficWeight, Address: statuses.Ip}
	}
	return traffic
}

func (h hooks) Remains(t testing.TB, employer string) []string {
	t.Helper()
	names := slices.Sorted(maps.Keys(h.Traffic(t, employer)))
	if _, has, err := h.inner.VIP(t.Context(), "default/"+employer); has || err != nil {
		names = append(names, "the virtual address")
	}
	return names
}

func (h hooks) Inject(_ testing.TB, fault adaptertest.Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fault.Kind == adaptertest.Restart {
		h.inner = &demo.DemoResourceProviderClient{}
		return
	}
	h.faults = append(h.faults, fault)
}

func (h hooks) Mend(testing.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = nil
	close(h.mended)
	h.mended = make(chan struct{})
}

func (h hooks) Settle(testing.TB) {}

func (h hooks) Calls(testing.TB) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}
