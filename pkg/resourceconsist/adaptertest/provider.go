package adaptertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// FakeLag is the delay of the fake provider under LateEffect and StaleReads.
const FakeLag = 5 * time.Second

// Errors of the fake provider. Other errors are errors of ctx.
var (
	// ErrExists is the error when something is created that exists. It is not changed.
	ErrExists = errors.New("exists already")
	// ErrNotFound is the error of a change or a deletion of something that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInUse is the error when a pool with servers is deleted.
	ErrInUse = errors.New("in use")
	// ErrInternal is the error of a request under Fail, FailOne or LostReply.
	ErrInternal = errors.New("internal error")
	// ErrThrottled is what resourceconsist.Throttled wraps for each request under Throttle.
	ErrThrottled = errors.New("too many requests")
)

// FakeServer is a real server in a pool of the fake provider.
type FakeServer struct {
	// ID is unique in the pool.
	ID string
	// Name is the name of the employee; empty for a server that others have added.
	Name    string
	Address string
	Weight  int
	// On is true when new requests go there.
	On bool
	// Sessions is the number of open requests. It is read-only: writes ignore it.
	Sessions int
}

// FakeProvider is a load balancer in memory: pools with real servers, one request for each
// change, faults on demand (see FakeFaults). Time advances only on its clock, so runs of a
// test are deterministic. It is safe for concurrent use.
type FakeProvider struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	versions []version // never empty; sorted by from
	sessions map[serverKey]int
	faults   []Fault
	mended   chan struct{} // closed by Mend
	calls    int
	cut      int
	fewest   map[string]int // servers with traffic, by pool: see Fewest
}

// version is the whole configuration, and the time from which it is in effect. It is
// immutable.
type version struct {
	from  time.Time
	pools fakePools
}

type fakePools map[string]fakePool

type fakePool struct {
	revision string
	servers  map[string]FakeServer
}

// serving returns the number of servers with traffic.
func (in fakePools) serving(pool string) int {
	count := 0
	for _, server := range in[pool].servers {
		if server.On && server.Name != "" {
			count++
		}
	}
	return count
}

type serverKey struct{ pool, id string }

// NewFakeProvider returns a provider without pools.
func NewFakeProvider(clock clock.PassiveClock) *FakeProvider {
	return &FakeProvider{
		clock:    clock,
		versions: []version{{pools: fakePools{}}},
		sessions: map[serverKey]int{},
		mended:   make(chan struct{}),
		fewest:   map[string]int{},
	}
}

// CreatePool creates an empty pool, or fails with ErrExists.
func (p *FakeProvider) CreatePool(ctx context.Context, pool, revision string) error {
	return p.write(ctx, CreateEmployer, "", func(in fakePools) error {
		if _, exists := in[pool]; exists {
			return fmt.Errorf("pool %q: %w", pool, ErrExists)
		}
		in[pool] = fakePool{revision: revision, servers: map[string]FakeServer{}}
		return nil
	})
}

// SetPool changes the revision of a pool, or fails with ErrNotFound.
func (p *FakeProvider) SetPool(ctx context.Context, pool, revision string) error {
	return p.write(ctx, UpdateEmployer, "", func(in fakePools) error {
		old, exists := in[pool]
		if !exists {
			return fmt.Errorf("pool %q: %w", pool, ErrNotFound)
		}
		in[pool] = fakePool{revision: revision, servers: old.servers}
		return nil
	})
}

// DeletePool deletes an empty pool, or fails with ErrInUse or ErrNotFound.
func (p *FakeProvider) DeletePool(ctx context.Context, pool string) error {
	return p.write(ctx, DeleteEmployer, "", func(in fakePools) error {
		old, exists := in[pool]
		if !exists {
			return fmt.Errorf("pool %q: %w", pool, ErrNotFound)
		}
		if len(old.servers) > 0 {
			return fmt.Errorf("pool %q with %d servers: %w", pool, len(old.servers), ErrInUse)
		}
		delete(in, pool)
		return nil
	})
}

// Pool returns the revision of a pool, or fails with ErrNotFound.
func (p *FakeProvider) Pool(ctx context.Context, pool string) (revision string, err error) {
	exists := false
	if err = p.read(ctx, ReadEmployer, func(in fakePools) {
		var found fakePool
		found, exists = in[pool]
		revision = found.revision
	}); err == nil && !exists {
		err = fmt.Errorf("pool %q: %w", pool, ErrNotFound)
	}
	return revision, err
}

// Servers returns the servers of a pool, sorted by id; empty without such a pool.
func (p *FakeProvider) Servers(ctx context.Context, pool string) ([]FakeServer, error) {
	var servers []FakeServer
	err := p.read(ctx, ReadEmployees, func(in fakePools) { servers = p.poolServers(in, pool) })
	return servers, err
}

// AddServer adds a server, or fails with ErrExists; with ErrNotFound without the pool.
func (p *FakeProvider) AddServer(ctx context.Context, pool string, server FakeServer) error {
	return p.write(ctx, CreateEmployees, server.employee(), func(in fakePools) error {
		if in[pool].servers == nil {
			return fmt.Errorf("pool %q: %w", pool, ErrNotFound)
		}
		if _, exists := in[pool].servers[server.ID]; exists {
			return fmt.Errorf("server %q of pool %q: %w", server.ID, pool, ErrExists)
		}
		in[pool].servers[server.ID] = server
		return nil
	})
}

// SetServer changes a server, or fails with ErrNotFound.
func (p *FakeProvider) SetServer(ctx context.Context, pool string, server FakeServer) error {
	return p.write(ctx, UpdateEmployees, server.employee(), func(in fakePools) error {
		if _, exists := in[pool].servers[server.ID]; !exists {
			return fmt.Errorf("server %q of pool %q: %w", server.ID, pool, ErrNotFound)
		}
		in[pool].servers[server.ID] = server
		return nil
	})
}

// RemoveServer removes a server, or fails with ErrNotFound. Its sessions are cut.
func (p *FakeProvider) RemoveServer(ctx context.Context, pool, id string) error {
	return p.write(ctx, DeleteEmployees, p.employeeName(pool, id), func(in fakePools) error {
		if _, exists := in[pool].servers[id]; !exists {
			return fmt.Errorf("server %q of pool %q: %w", id, pool, ErrNotFound)
		}
		delete(in[pool].servers, id)
		p.cutSessions(serverKey{pool: pool, id: id})
		return nil
	})
}

func (s FakeServer) employee() string { return cmp.Or(s.Name, s.ID) }

// employeeName returns the name of a server's employee, by the last change.
func (p *FakeProvider) employeeName(pool, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if server, exists := p.versions[len(p.versions)-1].pools[pool].servers[id]; exists {
		return server.employee()
	}
	return id
}

func (p *FakeProvider) cutSessions(key serverKey) {
	p.cut += p.sessions[key]
	delete(p.sessions, key)
}

// read calls see with the state that reads return now.
func (p *FakeProvider) read(ctx context.Context, op Op, see func(in fakePools)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(ctx, op, ""); err != nil {
		return err
	}
	at := p.clock.Now()
	if p.suffers(StaleReads) {
		at = at.Add(-FakeLag)
	}
	see(p.inForce(at))
	if _, lost := struck(p.faults, op, "", LostReply); lost {
		return fmt.Errorf("%s: %w", op, ErrInternal)
	}
	return nil
}

// write calls change with a copy of the accepted state.
func (p *FakeProvider) write(ctx context.Context, op Op, employee string, change func(in fakePools) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(ctx, op, employee); err != nil {
		return err
	}
	accepted := p.versions[len(p.versions)-1]
	changed := make(fakePools, len(accepted.pools))
	for name, pool := range accepted.pools {
		changed[name] = fakePool{revision: pool.revision, servers: maps.Clone(pool.servers)}
	}
	if err := change(changed); err != nil {
		return err
	}
	from := p.clock.Now()
	if p.suffers(LateEffect) {
		from = from.Add(FakeLag)
	}
	if from.Before(accepted.from) {
		from = accepted.from // changes take effect in the order in which they were made
	}
	p.versions = append(p.versionsBefore(from), version{from: from, pools: changed})
	for pool := range p.fewest {
		p.fewest[pool] = min(p.fewest[pool], changed.serving(pool))
	}
	if _, lost := struck(p.faults, op, employee, LostReply); lost {
		return fmt.Errorf("%s %q: the reply is lost: %w", op, employee, ErrInternal)
	}
	return nil
}

// versionsBefore returns the versions that a read may still return and that a new version,
// in effect from then on, does not replace.
func (p *FakeProvider) versionsBefore(from time.Time) []version {
	first, end := 0, len(p.versions)
	for i, v := range p.versions {
		if !v.from.After(p.clock.Now().Add(-FakeLag)) {
			first = i
		}
	}
	if p.versions[end-1].from.Equal(from) {
		end--
	}
	return slices.Clone(p.versions[min(first, end):end])
}

func (p *FakeProvider) inForce(at time.Time) fakePools {
	pools := p.versions[0].pools
	for _, v := range p.versions {
		if !v.from.After(at) {
			pools = v.pools
		}
	}
	return pools
}

func (p *FakeProvider) poolServers(in fakePools, pool string) []FakeServer {
	servers := slices.SortedFunc(maps.Values(in[pool].servers), func(a, b FakeServer) int { return cmp.Compare(a.ID, b.ID) })
	for i := range servers {
		servers[i].Sessions = p.sessions[serverKey{pool: pool, id: servers[i].ID}]
	}
	return servers
}
