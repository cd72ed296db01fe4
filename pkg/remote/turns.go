package remote

import (
	"context"
	"slices"
	"time"
)

// turns says whose call is made next. Calls of one namespace to one host form a queue; the
// queues take turns. So a host that hangs, and a namespace that asks a lot, slow down
// nobody but themselves. It has no lock of its own.
type turns struct {
	options PoolOptions
	queues  []*queue
	hosts   map[string]*host

	// next is the queue whose turn it is.
	next int

	// queued and running count calls; namespaces those that run, by namespace.
	queued     int
	running    int
	namespaces map[string]int
}

// queue has the calls of one namespace to one host, oldest first.
type queue struct {
	namespace string
	host      *host
	jobs      []*job
}

// host is one that calls go to.
type host struct {
	name    string
	breaker breaker
	queued  int
	running int

	// used is when a call to it last ended.
	used time.Time

	// promised: somebody was told that the host may be tried, and has until then to do so.
	promised time.Time
}

// job is a call on its way.
type job struct {
	call Call
	host *host

	// tries: it is the call that tries a host again after a pause.
	tries bool

	// ended: its result is about to be delivered.
	ended bool

	// gone: the rule is gone, nobody waits for the result.
	gone bool

	// cancel ends the call once it runs; nil before.
	cancel context.CancelFunc
}

// maxHosts bounds the hosts of which nothing but failures are known.
const maxHosts = 1024

func newTurns(options PoolOptions) *turns {
	return &turns{options: options, hosts: map[string]*host{}, namespaces: map[string]int{}}
}

// add puts a call at the end of its queue.
func (t *turns) add(call Call) *job {
	at := t.host(call.host())
	added := &job{call: call, host: at}
	at.queued++
	t.queued++
	namespace := call.Rule.Object.Namespace
	for _, existing := range t.queues {
		if existing.host == at && existing.namespace == namespace {
			existing.jobs = append(existing.jobs, added)
			return added
		}
	}
	t.queues = append(t.queues, &queue{namespace: namespace, host: at, jobs: []*job{added}})
	return added
}

func (t *turns) host(name string) *host {
	known, has := t.hosts[name]
	if !has {
		known = &host{name: name, breaker: breaker{options: t.options.Breaker}}
		t.hosts[name] = known
	}
	return known
}

// take returns the next call that may be made, or that need not be made: then failure says
// why. Nil when there is none. With hopeless, only calls that need not be made are taken.
func (t *turns) take(now time.Time, hopeless bool) (*job, *Failure) {
	for i := range t.queues {
		place := (t.next + i) % len(t.queues)
		from := t.queues[place]
		failure := refuses(from.host, now)
		if failure == nil && (hopeless || !t.hasRoom(from)) {
			continue
		}
		taken := from.jobs[0]
		from.jobs[0] = nil
		from.jobs = from.jobs[1:]
		t.queued--
		taken.host.queued--
		t.next = place + 1
		if len(from.jobs) == 0 {
			t.queues = slices.Delete(t.queues, place, place+1)
			t.next = place
		}
		if failure == nil {
			t.begin(taken, now)
		} else {
			t.drop(taken.host)
		}
		return taken, failure
	}
	return nil, nil
}

// refuses says why calls to a host are not made at all; nil when they are.
func refuses(at *host, now time.Time) *Failure {
	if door, wait := at.breaker.door(now); door == doorShut {
		return leftAlone(at, wait)
	}
	return nil
}

func leftAlone(at *host, wait time.Duration) *Failure {
	failure := fail(ClassBreakerOpen, "the service has failed %d times in a row and is left alone for %s",
		at.breaker.failures, wait.Round(time.Second))
	failure.RetryAfter = min(wait, MaxRetryAfter)
	return failure
}

// hasRoom says whether one more call of a queue may run. A host that has just failed gets
// one at a time: it is the one that may hang.
func (t *turns) hasRoom(from *queue) bool {
	limit := t.options.PerHost
	if from.host.breaker.failures > 0 {
		limit = 1
	}
	return t.running < t.options.Workers && from.host.running < limit && t.namespaces[from.namespace] < t.options.PerNamespace
}

func (t *turns) begin(taken *job, now time.Time) {
	if door, _ := taken.host.breaker.door(now); door == doorAjar {
		taken.tries, taken.host.breaker.trying = true, true
	}
	t.running++
	taken.host.running++
	t.namespaces[taken.call.Rule.Object.Namespace]++
}

// end takes note of a call that was made.
func (t *turns) end(ended *job, failure *Failure, now time.Time) {
	namespace := ended.call.Rule.Object.Namespace
	t.running--
	if t.namespaces[namespace]--; t.namespaces[namespace] == 0 {
		delete(t.namespaces, namespace)
	}
	ended.host.running--
	ended.host.used = now
	ended.host.breaker.ended(healthOf(failure), ended.tries, now)
	t.drop(ended.host)
}

// withdraw drops the calls that nobody waits for.
func (t *turns) withdraw() {
	for _, from := range t.queues {
		before := len(from.jobs)
		from.jobs = slices.DeleteFunc(from.jobs, func(j *job) bool { return j.gone })
		dropped := before - len(from.jobs)
		from.host.queued -= dropped
		t.queued -= dropped
		t.drop(from.host)
	}
	t.queues = slices.DeleteFunc(t.queues, func(from *queue) bool { return len(from.jobs) == 0 })
	t.next = 0
}

// drop forgets a host without calls that nothing is held against. Of the others without
// calls, the longest unused goes when there are too many.
func (t *turns) drop(done *host) {
	idle := func(h *host) bool { return h.queued == 0 && h.running == 0 }
	if idle(done) && done.breaker.fresh() {
		delete(t.hosts, done.name)
	}
	if len(t.hosts) <= maxHosts {
		return
	}
	var oldest *host
	for _, known := range t.hosts {
		if idle(known) && (oldest == nil || known.used.Before(oldest.used)) {
			oldest = known
		}
	}
	if oldest != nil {
		delete(t.hosts, oldest.name)
	}
}
