package webhookclient

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// PoolOptions bound a pool. Zero values select the defaults.
type PoolOptions struct {
	// Workers is how many calls of all namespaces run at once. Default: 32.
	Workers int

	// Reserved is the number of further calls that run at once, at most two in each namespace: the
	// first of the namespace, so that other namespaces cannot occupy all workers, and one to a target
	// that answered its last call, so that calls that hang cannot. Default: twice as many as Workers.
	Reserved int

	// PerNamespace is how many calls of one namespace run at once. Default: half of
	// Workers.
	PerNamespace int

	// PerHost is how many calls of one namespace to one host run at once. Default: 4.
	PerHost int

	// PerHostInAll is how many calls of all namespaces to one host run at once,
	// apart from the first call of each namespace. Default: 16.
	PerHostInAll int

	// Queue and QueueBytes bound the queued calls of all namespaces. Defaults: 4096 and 64 MiB.
	Queue      int
	QueueBytes int

	// QueuePerNamespace and BytesPerNamespace bound the queued calls of one namespace. Defaults: an
	// eighth of Queue and QueueBytes.
	QueuePerNamespace int
	BytesPerNamespace int

	// Breaker configures the circuit breaker of each target.
	Breaker Breaker

	// Log receives panics, and the details of failures that Shown hides. The zero value discards
	// them.
	Log logr.Logger
}

func (o PoolOptions) withDefaults() PoolOptions {
	set := func(value *int, standard int) {
		if *value <= 0 {
			*value = standard
		}
	}
	set(&o.Workers, 32)
	set(&o.Reserved, 2*o.Workers)
	set(&o.PerNamespace, (o.Workers+1)/2)
	set(&o.PerHost, 4)
	set(&o.PerHostInAll, 16)
	set(&o.Queue, 4096)
	set(&o.QueueBytes, 64<<20)
	set(&o.QueuePerNamespace, (o.Queue+7)/8)
	set(&o.BytesPerNamespace, o.QueueBytes/8)
	o.Breaker = o.Breaker.withDefaults()
	return o
}

// Pool makes calls in workers of its own. It is safe for concurrent use.
type Pool struct {
	caller  Caller
	options PoolOptions
	metrics *Metrics
	deliver func(Result)
	now     func() time.Time

	// mu guards the fields below. It is not held during I/O or while a result is delivered. work is
	// signalled when a call may have become possible.
	mu      sync.Mutex
	work    *sync.Cond
	queue   *fairQueue
	jobs    map[string]*job
	started bool
	stopped bool
}

// NewPool returns a pool that passes results to deliver, from any goroutine and from several at
// once. deliver must return quickly: a worker is blocked meanwhile.
func NewPool(caller Caller, options PoolOptions, metrics *Metrics, deliver func(Result)) *Pool {
	options = options.withDefaults()
	p := &Pool{caller: caller, options: options, metrics: metrics, deliver: deliver, now: time.Now,
		queue: newFairQueue(options), jobs: map[string]*job{}}
	p.work = sync.NewCond(&p.mu)
	metrics.watch(p.openBreakers)
	return p
}

// NeedLeaderElection returns true: only the leader makes calls.
func (p *Pool) NeedLeaderElection() bool { return true }

// Submit queues a call and returns at once. It reports whether the call was accepted: an accepted
// call has one result, unless the pool stops or the rule is forgotten before. A call is rejected if
// the queue is full (with the failure Busy), if a call with the same key is queued or running, or
// if the pool has stopped; then nothing is sent.
func (p *Pool) Submit(call Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.jobs[call.Key]
	if before != nil && !before.ended || p.stopped || !p.queue.takes(call.Rule.Ruleset.Namespace, call.bytes()) {
		return false
	}
	p.jobs[call.Key] = p.queue.add(call)
	p.metrics.waiting(p.queue.queued)
	p.work.Broadcast()
	return true
}

// CircuitOpen returns the failure of a call whose circuit breaker is open; nil if the call would be
// made, or would be the probe. It changes nothing.
func (p *Pool) CircuitOpen(call Call) *Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, now := p.queue.known(call.target()), p.now()
	if at == nil {
		return nil
	}
	if failure := at.open(now); failure != nil {
		return failure
	}
	return at.reservedProbe(now)
}

// Admit is called right before a call is recorded and submitted. It returns the failure of
// CircuitOpen. If the circuit breaker is half-open, it reserves the probe for the caller until the
// call is submitted, for at most probeReserved, and returns true: the caller then submits one call,
// and no others to that target.
func (p *Pool) Admit(call Call) (probe bool, failure *Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, now := p.queue.known(call.target()), p.now()
	if at == nil {
		return false, nil
	}
	if failure := at.open(now); failure != nil {
		return false, failure
	}
	if failure := at.reservedProbe(now); failure != nil {
		return false, failure
	}
	if state, _ := at.breaker.state(now); state == stateHalfOpen {
		at.reserved = now.Add(probeReserved)
		return true, nil
	}
	return false, nil
}

// probeReserved bounds how long the probe is reserved: a status is written before the call is
// submitted.
const probeReserved = 5 * time.Second

// CountSkipped counts a call that was not submitted because the circuit breaker is open.
func (p *Pool) CountSkipped(call Call, failure *Failure) {
	p.metrics.counted(Result{Call: call, Failure: failure})
}

// Busy returns the failure of a rejected call.
func Busy() *Failure {
	failure := fail(ClassBusy, "too many calls of webhook rules are queued")
	failure.RetryAfter = 5 * time.Second
	return failure
}

// InFlight reports whether a call is queued, running, or being delivered.
func (p *Pool) InFlight(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.jobs[key]
	return has
}

// Forget drops the state of a deleted rule: queued calls are not made, running calls are cancelled,
// no results are delivered, and its metrics are deleted. An empty name of the rule means all rules
// of the object.
func (p *Pool) Forget(rule rule.RuleID) {
	p.mu.Lock()
	for key, job := range p.jobs {
		if job.call.Rule.Ruleset != rule.Ruleset || rule.Rule != "" && job.call.Rule.Rule != rule.Rule {
			continue
		}
		job.gone = true
		delete(p.jobs, key)
		if job.cancel != nil {
			job.cancel()
		}
	}
	p.queue.withdraw()
	p.metrics.waiting(p.queue.queued)
	p.mu.Unlock()
	p.metrics.forget(rule)
}

// Start makes calls until ctx ends, and returns when the last call has ended. Calls that ctx
// cancels have no result, because the receiver stops too. It runs once.
func (p *Pool) Start(ctx context.Context) error {
	p.mu.Lock()
	if p.started {
		p.mu.Unlock()
		return errors.New("the pool of webhook calls was started twice")
	}
	p.started = true
	p.mu.Unlock()

	defer context.AfterFunc(ctx, p.stop)()
	var workers sync.WaitGroup
	for range p.options.Workers + p.options.Reserved {
		workers.Go(func() { p.run(ctx, false) })
	}
	// One more worker for calls that fail fast: they must not wait for hanging calls.
	workers.Go(func() { p.run(ctx, true) })
	workers.Wait()
	p.caller.CloseIdle()
	return nil
}

func (p *Pool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.work.Broadcast()
}

// run makes calls, one after the other.
func (p *Pool) run(ctx context.Context, failFast bool) {
	for {
		taken, failure := p.take(failFast)
		if taken == nil {
			return
		}
		var result Result
		if failure != nil {
			result = Result{Call: taken.call, Failure: failure}
		} else {
			result = p.make(ctx, taken)
		}
		p.end(ctx, taken, result)
	}
}

// take waits for a call; nil when the pool has stopped.
func (p *Pool) take(failFast bool) (*job, *Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped {
		if taken, failure := p.queue.take(p.now(), failFast); taken != nil {
			p.metrics.waiting(p.queue.queued)
			return taken, failure
		}
		p.work.Wait()
	}
	return nil, nil
}

// make makes a call and releases its place.
func (p *Pool) make(ctx context.Context, taken *job) Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	taken.cancel = cancel
	if taken.gone {
		cancel()
	}
	p.mu.Unlock()

	p.metrics.began(taken.call.Key, p.now())
	result := taken.call.make(ctx, p.caller)
	p.metrics.ended(taken.call.Key)

	p.mu.Lock()
	p.queue.end(taken, result.Failure, p.now())
	mayLog := result.Failure != nil && taken.at.tenant.logs.AllowN(p.now(), 1)
	p.work.Broadcast()
	p.mu.Unlock()
	if failure := result.Failure; failure != nil {
		log := p.options.Log.WithValues("rule", taken.call.Rule, "message", failure.Message)
		if failure.Class == ClassInternal {
			log.Error(failure.Err, "Webhook call failed inside of PodOps")
		}
		if failure.hidden() && mayLog {
			log.Info("Webhook call failed", "host", taken.at.key.host, "class", failure.Class)
		}
	}
	return result
}

// end delivers a result. The call stays in flight until then: without a call and a result, the
// controller treats a task as interrupted.
func (p *Pool) end(ctx context.Context, ended *job, result Result) {
	p.mu.Lock()
	ended.ended = true
	gone := ended.gone
	p.mu.Unlock()
	if gone || ctx.Err() != nil {
		return
	}
	p.metrics.counted(result)
	defer func() {
		if panicked := recover(); panicked != nil {
			p.options.Log.Error(nil, "Delivering a webhook result panicked", "rule", ended.call.Rule, "panic", panicked, "stack", string(debug.Stack()))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.jobs[ended.call.Key] == ended {
			delete(p.jobs, ended.call.Key)
		}
	}()
	p.deliver(result)
}

// openBreakers returns how many circuit breakers are not closed, by namespace and host.
func (p *Pool) openBreakers() map[[2]string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	open, now := map[[2]string]int{}, p.now()
	for namespace, owner := range p.queue.tenants {
		for key, at := range owner.targets {
			if state, _ := at.breaker.state(now); state != stateClosed {
				open[[2]string{namespace, key.host}]++
			}
		}
	}
	return open
}
