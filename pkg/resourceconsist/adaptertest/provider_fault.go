package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// admit counts a request and admits it, unless a fault applies. It releases the lock while
// the request hangs.
func (p *FakeProvider) admit(ctx context.Context, op Op, employee string) error {
	p.calls++
	kind, hit := struck(p.faults, op, employee, Hang, Throttle, Fail, FailOne)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !hit:
		return nil
	case kind == Throttle:
		return resourceconsist.Throttled(ErrThrottled, FakeLag)
	case kind != Hang:
		return fmt.Errorf("%s %q: %w", op, employee, ErrInternal)
	}
	mended := p.mended
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-mended:
		return nil
	}
}

func (p *FakeProvider) suffers(kind Kind) bool {
	return slices.ContainsFunc(p.faults, func(f Fault) bool { return f.Kind == kind })
}

// FakeFaults implements Provider, Occupier, Sharer, Watcher and Counter for a FakeProvider whose pools have the
// names of employers. Time advances in Settle alone.
type FakeFaults struct {
	provider *FakeProvider
	clock    *testingclock.FakePassiveClock
}

// NewFakeFaults returns a fake provider and its hooks for the suite.
func NewFakeFaults() (*FakeProvider, *FakeFaults) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	provider := NewFakeProvider(clock)
	return provider, &FakeFaults{provider: provider, clock: clock}
}

// Traffic returns the state in effect.
func (f *FakeFaults) Traffic(_ testing.TB, employer string) map[string]Traffic {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	traffic := map[string]Traffic{}
	for _, server := range p.poolServers(p.inForce(p.clock.Now()), employer) {
		// Of two pods with one name in succession, the server that gets requests counts.
		before := traffic[server.employee()]
		both := Traffic{On: server.On, Sessions: server.Sessions, Weight: server.Weight, Address: server.Address}
		if before.On && !server.On {
			both = before
		}
		both.Sessions = before.Sessions + server.Sessions
		traffic[server.employee()] = both
	}
	return traffic
}

// Remains returns the names of the employer's pool and its servers.
func (f *FakeFaults) Remains(_ testing.TB, employer string) []string {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	pools := p.inForce(p.clock.Now())
	var remains []string
	if _, exists := pools[employer]; exists {
		remains = append(remains, "pool "+employer)
	}
	for _, server := range p.poolServers(pools, employer) {
		remains = append(remains, "server "+server.employee())
	}
	return remains
}

// Inject adds a fault.
func (f *FakeFaults) Inject(t testing.TB, fault Fault) {
	if fault.Kind == StaleReads {
		f.Settle(t) // so that StaleReads returns the state up to now
	}
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if fault.Kind != Restart {
		p.faults = append(p.faults, fault)
		return
	}
	for key := range p.sessions {
		p.cutSessions(key)
	}
	p.versions = []version{{from: p.clock.Now(), pools: fakePools{}}}
}

// Mend removes the faults. A change that was accepted late still takes effect late.
func (f *FakeFaults) Mend(testing.TB) {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	close(p.mended)
	p.mended = make(chan struct{})
}

// Settle advances the clock by FakeLag.
func (f *FakeFaults) Settle(testing.TB) { f.clock.SetTime(f.clock.Now().Add(FakeLag)) }

// Occupy keeps sessions open at a server.
func (f *FakeFaults) Occupy(_ testing.TB, employer, employee string, sessions int) {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, server := range p.poolServers(p.inForce(p.clock.Now()), employer) {
		if server.employee() == employee {
			p.sessions[serverKey{pool: employer, id: server.ID}] = sessions
		}
	}
}

// Cut returns how many sessions ended because their server was removed or the provider
// restarted.
func (f *FakeFaults) Cut(testing.TB) int {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	return f.provider.cut
}

// Calls returns how many requests the provider has received.
func (f *FakeFaults) Calls(testing.TB) int {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	return f.provider.calls
}

// AddForeign adds a server without an employee's name to the employer's pool.
func (f *FakeFaults) AddForeign(_ testing.TB, employer string) {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[len(p.versions)-1].pools[employer].servers[foreignID] = FakeServer{ID: foreignID, Address: "198.51.100.1", Weight: 1, On: true}
}

const foreignID = "of-another-client"

// Foreign returns that server.
func (f *FakeFaults) Foreign(_ testing.TB, employer string) string {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if server, exists := p.inForce(p.clock.Now())[employer].servers[foreignID]; exists {
		return fmt.Sprintf("%+v", server)
	}
	return ""
}

// Fewest returns the smallest number of servers with traffic since its last call, or now.
func (f *FakeFaults) Fewest(_ testing.TB, employer string) int {
	p := f.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.inForce(p.clock.Now()).serving(employer)
	fewest, watched := p.fewest[employer]
	p.fewest[employer] = now
	if !watched {
		return now
	}
	return min(fewest, now)
}
