package webhookclient

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// fairQueue decides which call is made next, in round robin over namespaces, and within a namespace
// over its targets. A hanging target delays only its own calls, and a namespace with many targets
// or calls only its own: each namespace has limits of its own, and a namespace without a running
// call gets a worker even if the others use up the shared workers. So does a target without a
// running call that has answered its last call: the calls of a namespace that hang, its own or the
// calls of others, do not delay the calls that are answered. It has no lock of its own.
type fairQueue struct {
	options PoolOptions
	tenants map[string]*tenant

	// order has the tenants with queued calls, the next tenant first.
	order []*tenant

	// hosts counts the running calls to each host, of all namespaces.
	hosts map[string]int

	// targets, queued, queuedBytes and running are the sums over all tenants.
	targets     int
	queued      int
	queuedBytes int
	running     int
}

// tenant has the calls of one namespace.
type tenant struct {
	namespace string
	targets   map[targetKey]*target

	// order has the targets with queued calls, the next target first.
	order []*target

	queued      int
	queuedBytes int
	running     int

	// further is the number of running calls that began as calls of answering targets while all
	// shared workers were in use: 0 or 1.
	further int

	// logs bounds the failures of the namespace that are logged.
	logs *rate.Limiter
}

// job is a call that is queued or running.
type job struct {
	call  Call
	at    *target
	bytes int

	// probe is set for the call that a half-open breaker let through, and further for a call that
	// counts in further of its tenant.
	probe   bool
	further bool

	// ended is set when its result is about to be delivered.
	ended bool

	// gone is set when the rule is deleted; the result is not delivered.
	gone bool

	// cancel cancels the call once it runs; nil before.
	cancel context.CancelFunc
}

const (
	// maxTargets and maxTargetsPerNamespace bound the targets that are kept only for the evidence
	// of their last calls.
	maxTargets             = 1024
	maxTargetsPerNamespace = 64

	// freeQueue is the number of calls in a namespace that may be queued although the shared queue
	// is full.
	freeQueue = 8
)

func newFairQueue(options PoolOptions) *fairQueue {
	return &fairQueue{options: options, tenants: map[string]*tenant{}, hosts: map[string]int{}}
}

// takes reports whether a call of a namespace with so many bytes may be queued.
func (t *fairQueue) takes(namespace string, bytes int) bool {
	own := tenant{}
	if known, has := t.tenants[namespace]; has {
		own = *known
	}
	switch {
	case own.queued == 0:
		return true
	case own.queued >= t.options.QueuePerNamespace, own.queuedBytes+bytes > t.options.BytesPerNamespace:
		return false
	default:
		return own.queued < freeQueue || t.queued < t.options.Queue && t.queuedBytes+bytes <= t.options.QueueBytes
	}
}

// add appends a call to the queue of its target.
func (t *fairQueue) add(call Call) *job {
	at := t.target(call.target())
	added := &job{call: call, at: at, bytes: call.bytes()}
	if len(at.jobs) == 0 {
		at.tenant.order = append(at.tenant.order, at)
	}
	if at.tenant.queued == 0 {
		t.order = append(t.order, at.tenant)
	}
	at.jobs = append(at.jobs, added)
	t.count(added, 1)
	return added
}

// count adds a job to the number of queued jobs, or with -1 subtracts it.
func (t *fairQueue) count(of *job, by int) {
	of.at.tenant.queued += by
	of.at.tenant.queuedBytes += by * of.bytes
	t.queued += by
	t.queuedBytes += by * of.bytes
}

// target returns the target of a key, and creates it on first use.
func (t *fairQueue) target(key targetKey) *target {
	owner, has := t.tenants[key.namespace]
	if !has {
		owner = &tenant{namespace: key.namespace, targets: map[targetKey]*target{}, logs: rate.NewLimiter(rate.Every(10*time.Second), 5)}
		t.tenants[key.namespace] = owner
	}
	at, has := owner.targets[key]
	if !has {
		at = &target{key: key, tenant: owner, breaker: breaker{options: t.options.Breaker}}
		owner.targets[key] = at
		t.targets++
	}
	return at
}

// known returns the target of a key, or nil.
func (t *fairQueue) known(key targetKey) *target {
	if owner, has := t.tenants[key.namespace]; has {
		return owner.targets[key]
	}
	return nil
}

// take returns the next call that may be made, or that fails at once because the circuit breaker is
// open: then failure is its result. It returns nil without such a call. With failFast, only calls
// that fail at once are taken.
func (t *fairQueue) take(now time.Time, failFast bool) (*job, *Failure) {
	for index, owner := range t.order {
		for i, at := range owner.order {
			failure := at.open(now)
			if failure == nil && (failFast || !t.mayRun(at)) {
				continue
			}
			taken := at.jobs[0]
			at.jobs[0] = nil
			at.jobs = at.jobs[1:]
			t.count(taken, -1)
			owner.order = behind(owner.order, i, len(at.jobs) > 0)
			t.order = behind(t.order, index, owner.queued > 0)
			if failure == nil {
				t.begin(taken, now)
			} else {
				t.drop(at)
			}
			return taken, failure
		}
	}
	return nil, nil
}

// behind moves the element at a place to the end, or removes it.
func behind[T any](order []T, place int, stays bool) []T {
	moved := order[place]
	order = slices.Delete(order, place, place+1)
	if stays {
		order = append(order, moved)
	}
	return order
}

// mayRun reports whether one more call to a target may run. A target whose last call failed gets
// one call at a time, because it may hang.
func (t *fairQueue) mayRun(at *target) bool {
	limit := t.options.PerHost
	if at.breaker.failures > 0 {
		limit = 1
	}
	return at.running < limit &&
		at.tenant.running < t.options.PerNamespace &&
		(t.hasWorker(at.tenant) || t.isFurther(at)) &&
		(t.hosts[at.key.host] < t.options.PerHostInAll || at.running == 0)
}

// hasWorker reports whether a shared worker, or the worker of a namespace without a running call, is free.
func (t *fairQueue) hasWorker(of *tenant) bool {
	return t.running < t.options.Workers || of.running == 0
}

// isFurther reports whether a call may run as the only further call of its namespace.
func (t *fairQueue) isFurther(at *target) bool {
	return at.breaker.answered && at.running == 0 && at.tenant.further == 0
}

func (t *fairQueue) begin(taken *job, now time.Time) {
	at := taken.at
	if state, _ := at.breaker.state(now); state == stateHalfOpen {
		taken.probe, at.breaker.probing, at.reserved = true, true, time.Time{}
	}
	if !t.hasWorker(at.tenant) {
		taken.further = true
		at.tenant.further++
	}
	t.running++
	at.running++
	at.tenant.running++
	t.hosts[at.key.host]++
}

// end counts the end of a call that was made.
func (t *fairQueue) end(ended *job, failure *Failure, now time.Time) {
	at := ended.at
	t.running--
	at.running--
	at.tenant.running--
	if ended.further {
		at.tenant.further--
	}
	if t.hosts[at.key.host]--; t.hosts[at.key.host] == 0 {
		delete(t.hosts, at.key.host)
	}
	at.used = now
	at.breaker.ended(failureHealth(failure), ended.probe, now)
	t.drop(at)
}

// withdraw removes the queued calls of deleted rules.
func (t *fairQueue) withdraw() {
	for _, owner := range t.order {
		for _, at := range owner.order {
			at.jobs = slices.DeleteFunc(at.jobs, func(j *job) bool {
				if j.gone {
					t.count(j, -1)
				}
				return j.gone
			})
			t.drop(at)
		}
		owner.order = slices.DeleteFunc(owner.order, func(at *target) bool { return len(at.jobs) == 0 })
	}
	t.order = slices.DeleteFunc(t.order, func(owner *tenant) bool { return owner.queued == 0 })
}

// drop deletes a target without calls whose breaker has no evidence. Above the limits it
// also deletes the least recently used target without calls: of its namespace, or of the namespace
// that has most targets.
func (t *fairQueue) drop(done *target) {
	if done.idle() && done.breaker.fresh() {
		t.forget(done)
	}
	if len(done.tenant.targets) > maxTargetsPerNamespace {
		t.forget(done.tenant.oldestIdle())
	}
	if t.targets <= maxTargets {
		return
	}
	var most *tenant
	for _, owner := range t.tenants {
		if most == nil || len(owner.targets) > len(most.targets) {
			most = owner
		}
	}
	t.forget(most.oldestIdle())
}

// oldestIdle returns the least recently used target without calls; nil if all have calls.
func (t *tenant) oldestIdle() *target {
	var oldest *target
	for _, known := range t.targets {
		if known.idle() && (oldest == nil || known.used.Before(oldest.used)) {
			oldest = known
		}
	}
	return oldest
}

func (t *fairQueue) forget(gone *target) {
	if gone == nil || gone.tenant.targets[gone.key] != gone {
		return
	}
	delete(gone.tenant.targets, gone.key)
	t.targets--
	if len(gone.tenant.targets) == 0 {
		delete(t.tenants, gone.tenant.namespace)
	}
}
