package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a lease in memory. It is safe for concurrent use.
type lock struct {
	mu     sync.Mutex
	record resourcelock.LeaderElectionRecord
}

// warming is the time from the start of a manager until it may hold a lease, which another may have released. A
// controller that starts while its caches still fill waits on a mutex, which stops the time of a bubble.
const warming = 10 * time.Second

// newLock returns a lease that an earlier manager held until now, so that it is granted once it has expired.
func newLock(now time.Time) *lock {
	l := &lock{record: resourcelock.LeaderElectionRecord{HolderIdentity: "before", LeaseDurationSeconds: 15}}
	l.record.AcquireTime.Time, l.record.RenewTime.Time = now, now
	return l
}

var errWarming = errors.New("the caches of the manager still fill")

// candidate is a manager that may hold a lease while it is alive.
type candidate struct {
	from     time.Time
	lock     *lock
	identity string
	alive    context.Context
}

// Get implements resourcelock.Interface.
func (c *candidate) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if c.alive.Err() != nil {
		return nil, nil, errDead
	}
	if time.Now().Before(c.from) {
		return nil, nil, errWarming
	}
	c.lock.mu.Lock()
	defer c.lock.mu.Unlock()
	record := c.lock.record
	return &record, fmt.Appendf(nil, "%v", record), nil
}

// Create implements resourcelock.Interface. The lease always exists.
func (c *candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, record)
}

// Update implements resourcelock.Interface.
func (c *candidate) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if c.alive.Err() != nil {
		return errDead
	}
	c.lock.mu.Lock()
	defer c.lock.mu.Unlock()
	c.lock.record = record
	return nil
}

// RecordEvent implements resourcelock.Interface.
func (*candidate) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (c *candidate) Identity() string { return c.identity }

// Describe implements resourcelock.Interface.
func (*candidate) Describe() string { return managerNamespace + "/podops" }
