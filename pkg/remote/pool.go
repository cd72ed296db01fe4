package remote

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podops-dev/podops/pkg/policy"
)

// PoolOptions bound a pool. Zero values stand for the defaults.
type PoolOptions struct {
	// Workers is how many calls run at once. Default: 32.
	Workers int

	// PerHost is how many of them go to one host. Default: 4.
	PerHost int

	// PerNamespace is how many of them are of the rules of one namespace. Default: half of
	// the workers, so that no namespace can take them all with hosts that hang.
	PerNamespace int

	// Queue is how many calls wait. Default: 4096.
	Queue int

	// Breaker of each host.
	Breaker Breaker

	// Log is told of panics only. The zero value says nothing.
	Log logr.Logger
}

func (o PoolOptions) withDefaults() PoolOptions {
	if o.Workers <= 0 {
		o.Workers = 32
	}
	if o.PerHost <= 0 {
		o.PerHost = 4
	}
	if o.PerNamespace <= 0 {
		o.PerNamespace = (o.Workers + 1) / 2
	}
	if o.Queue <= 0 {
		o.Queue = 4096
	}
	o.Breaker = o.Breaker.withDefaults()
	return o
}

// Pool makes calls outside of the workers that ask for them. It is safe for concurrent use.
type Pool struct {
	caller  Caller
	options PoolOptions
	metrics *Metrics
	deliver func(Result)
	now     func() time.Time

	// mu guards what follows. It is never held across I/O, nor while a result is
	// delivered. Work is signalled when a call may have become possible.
	mu      sync.Mutex
	work    *sync.Cond
	turns   *turns
	jobs    map[string]*job
	started bool
	stopped bool
}

// NewPool returns a pool whose results go to deliver: from any goroutine, also from several
// at once. Deliver must not block for long: the worker that calls it waits.
func NewPool(caller Caller, options PoolOptions, metrics *Metrics, deliver func(Result)) *Pool {
	options = options.withDefaults()
	p := &Pool{caller: caller, options: options, metrics: metrics, deliver: deliver, now: time.Now,
		turns: newTurns(options), jobs: map[string]*job{}}
	p.work = sync.NewCond(&p.mu)
	return p
}

// NeedLeaderElection says that calls are made by the leader only.
func (p *Pool) NeedLeaderElection() bool { return true }

// Submit asks for a call and returns at once. It says whether the call was taken: a call
// that was taken has one result, unless the pool stops or the rule is forgotten before. It
// is not taken when the queue is full (Busy is the failure for that), when one of the same
// key waits or runs, or when the pool has stopped; then nothing is sent.
func (p *Pool) Submit(call Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.jobs[call.Key]; before != nil && !before.ended || p.stopped || p.turns.queued >= p.options.Queue {
		return false
	}
	p.jobs[call.Key] = p.turns.add(call)
	p.metrics.waiting(p.turns.queued)
	p.work.Broadcast()
	return true
}

// LeftAlone says why a call would not be made now, because its host has failed again and
// again: whoever asks before it submits spares the way there and back. Nil when the call may
// be made. Of the many that ask when a host may be tried again, one is told so; the others
// when it has failed to submit its call.
func (p *Pool) LeftAlone(call Call) *Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.turns.hosts[call.host()]
	if !known {
		return nil
	}
	now := p.now()
	if failure := refuses(at, now); failure != nil {
		return failure
	}
	if door, _ := at.breaker.door(now); door == doorAjar {
		if now.Before(at.promised) {
			return leftAlone(at, at.promised.Sub(now))
		}
		at.promised = now.Add(promiseFor)
	}
	return nil
}

// promiseFor is how long the one that may try a host has to submit its call: it has a
// status to write before.
const promiseFor = 5 * time.Second

// Refused counts a call that was not submitted because its host is left alone.
func (p *Pool) Refused(call Call, failure *Failure) {
	p.metrics.counted(Result{Call: call, Failure: failure}, call.host(), true)
}

// Busy is the failure of a call that was not taken.
func Busy() *Failure {
	failure := fail(ClassBusy, "too many calls of webhook rules wait for their turn")
	failure.RetryAfter = 5 * time.Second
	return failure
}

// InFlight says whether a call waits, runs, or is just being delivered.
func (p *Pool) InFlight(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.jobs[key]
	return has
}

// Forget drops what there is of a rule that is gone: calls that wait are not made, calls
// that run are ended, no results are delivered, and its metrics go. An empty name of the
// rule stands for all rules of the object.
func (p *Pool) Forget(rule policy.RuleID) {
	p.mu.Lock()
	for key, job := range p.jobs {
		if job.call.Rule.Object != rule.Object || rule.Rule != "" && job.call.Rule.Rule != rule.Rule {
			continue
		}
		job.gone = true
		delete(p.jobs, key)
		if job.cancel != nil {
			job.cancel()
		}
	}
	p.turns.withdraw()
	p.metrics.waiting(p.turns.queued)
	p.mu.Unlock()
	p.metrics.forget(rule)
}

// Start makes calls until its context ends, and returns when the last one has. Calls that
// are cut off by that have no result: nobody can write it down any more. It runs once.
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
	for range p.options.Workers {
		workers.Go(func() { p.run(ctx, false) })
	}
	// One more for the calls that need not be made: they must not wait for those that hang.
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
func (p *Pool) run(ctx context.Context, hopeless bool) {
	for {
		taken, failure := p.take(hopeless)
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
func (p *Pool) take(hopeless bool) (*job, *Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped {
		if taken, failure := p.turns.take(p.now(), hopeless); taken != nil {
			p.metrics.waiting(p.turns.queued)
			return taken, failure
		}
		p.work.Wait()
	}
	return nil, nil
}

// make makes a call and gives its place back.
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
	p.turns.end(taken, result.Failure, p.now())
	p.work.Broadcast()
	p.mu.Unlock()
	if result.Failure != nil && result.Failure.Class == ClassInternal {
		p.options.Log.Error(result.Failure.Err, "Webhook call failed for no reason of the service", "rule", taken.call.Rule, "message", result.Failure.Message)
	}
	return result
}

// end delivers a result. Only after that the call is no longer in flight: who finds neither
// a call nor its result takes it for interrupted.
func (p *Pool) end(ctx context.Context, ended *job, result Result) {
	p.mu.Lock()
	ended.ended = true
	gone := ended.gone
	door, _ := ended.host.breaker.door(p.now())
	p.mu.Unlock()
	if gone || ctx.Err() != nil {
		return
	}
	p.metrics.counted(result, ended.host.name, door != doorOpen)
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
