package sandbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

const (
	// suspectFor is for how long no module of a namespace shares a worker with others after one of them has
	// ended a worker.
	suspectFor = 10 * time.Minute

	// expensive is the CPU time of compiling from which a module shares no worker: others wait meanwhile.
	expensive = 500 * time.Millisecond
)

// pool has the workers that namespaces share. A worker is started for the first batch that finds none idle.
type pool struct {
	// slots are for the workers. slow leaves one of several to namespaces that are not slow.
	slots, slow *fairshare.Slots

	// keep is for how long a worker may be idle, turn for how long a batch may hold it.
	keep, turn time.Duration

	mu sync.Mutex

	// idle are workers without work, the last used one last.
	idle []*worker

	// suspects are namespaces and the ids of modules by the time at which they ended a worker, or took long to
	// compile. No namespace is as long as an id.
	suspects map[string]time.Time
}

func newPool(options Options) *pool {
	workers := max(1, options.Workers)
	return &pool{
		slots: fairshare.NewSlots(fairshare.SlotOptions{Slots: workers}),
		slow:  fairshare.NewSlots(fairshare.SlotOptions{Slots: max(1, workers/2)}),
		keep:  cmp.Or(options.Idle, defaultIdle), turn: cmp.Or(options.Turn, time.Hour), suspects: map[string]time.Time{},
	}
}

// enter waits for the permission to use a worker.
func (p *pool) enter(ctx context.Context, namespace string) (leave func(), err error) {
	releaseSlow := func() {}
	if opa.InSlowLane(ctx) {
		if releaseSlow, err = p.slow.Acquire(ctx, namespace); err != nil {
			return nil, err
		}
	}
	release, err := p.slots.Acquire(ctx, namespace)
	if err != nil {
		releaseSlow()
		return nil, err
	}
	return func() {
		release()
		releaseSlow()
	}, nil
}

// take returns an idle worker; nil if no worker is idle.
func (p *pool) take() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		last.idle.Stop()
		if !last.hasEnded() {
			return last
		}
		go last.end() // it was killed from outside, and its pipes are left
	}
	return nil
}

// put keeps a worker for the next batch, for some time.
func (p *pool) put(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, w)
	w.idle = time.AfterFunc(p.keep, func() {
		if p.remove(w) {
			w.end()
		}
	})
}

// remove reports whether a worker was idle, and is not any more.
func (p *pool) remove(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.idle, w)
	if at < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, at, at+1)
	return true
}

// suspect keeps a namespace or a module away from shared workers for some time.
func (p *pool) suspect(key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, at := range p.suspects {
		if now.Sub(at) >= suspectFor {
			delete(p.suspects, other)
		}
	}
	p.suspects[key] = now
}

func (p *pool) isSuspect(key string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.suspects[key]
	return known && now.Sub(at) < suspectFor
}

// Evaluate evaluates a batch in a worker. It implements opa.Workers.
//
// A module that uses up the CPU time, memory or stack of its worker gets opa.ErrTimeout for the request that
// was evaluated, and its namespace shares no worker for some time: each of its batches has a worker of its
// own, in the place of a check. The other requests of the batch, and all requests of a worker that fails for
// another reason, are not reached, and can be evaluated again.
func (s *Sandbox) Evaluate(ctx context.Context, batch opa.Batch) ([]opa.Answer, time.Duration, error) {
	now := time.Now()
	alone := s.workers.isSuspect(batch.Namespace, now) || s.workers.isSuspect(batch.ID, now)
	leave, err := s.enter(ctx, batch.Namespace, alone)
	if err != nil {
		return nil, 0, opa.ErrNotReached
	}
	defer leave()
	w, err := s.workerFor(alone)
	if err != nil {
		return nil, 0, err
	}
	before := w.used()
	given := w.evaluate(ctx, batch, s.workers.budget(ctx))
	if given.compiling >= expensive {
		s.workers.suspect(batch.ID, time.Now())
	}
	if given.failure == nil && !given.tired && !alone {
		used := w.used() - before
		s.workers.put(w)
		return given.given, used, given.err
	}
	w.end()
	if given.failure != nil {
		s.settle(ctx, w, batch, &given)
	}
	return given.given, w.used() - before, given.err
}

// settle sets the answers of a batch whose worker has failed.
func (s *Sandbox) settle(ctx context.Context, w *worker, batch opa.Batch, given *answers) {
	guilty, why := w.cause(ctx, *given, batch.Limit)
	given.err = why
	if guilty {
		s.workers.suspect(batch.Namespace, time.Now())
		given.given = append(given.given, opa.Answer{Err: why})
		given.err = opa.ErrNotReached // the requests after the request that was evaluated
	}
}

// budget returns the time for a batch: until the deadline of ctx, at most a turn.
func (p *pool) budget(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return p.turn
	}
	return max(0, min(p.turn, time.Until(deadline)))
}

// enter waits for a place: one of a check if the batch shares no worker.
func (s *Sandbox) enter(ctx context.Context, namespace string, alone bool) (leave func(), err error) {
	if alone {
		return s.slots.Acquire(ctx, namespace)
	}
	return s.workers.enter(ctx, namespace)
}

// workerFor returns a worker that is idle, or starts a worker.
func (s *Sandbox) workerFor(alone bool) (*worker, error) {
	if !alone {
		if known := s.workers.take(); known != nil {
			return known, nil
		}
	}
	return s.start()
}
