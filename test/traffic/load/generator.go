package load

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Bounds of Options.
const (
	maxWorkers     = 1000
	maxRate        = 100_000
	defaultTimeout = 10 * time.Second
)

// Options configures a load.
type Options struct {
	// Address is "<ip>:<port>" of the load balancer. It must be a loopback address, so that
	// no other host gets the load.
	Address string

	// Paths are requested in turn by every worker. Empty: "/".
	Paths []string

	// Workers is the maximum number of open requests of each kind.
	Workers int

	// Rate is the number of requests of each kind per second that are due, over all
	// workers. 0: every worker sends its next request when its last request has ended.
	Rate float64

	// Timeout bounds each request, from sending to the last byte. 0: 10 seconds.
	Timeout time.Duration

	// Record is called with every outcome, by several goroutines at once. It may be nil.
	Record func(Outcome)
}

// Load sends requests from Start to Stop.
type Load struct {
	options Options
	began   time.Time
	stop    chan struct{}
	once    sync.Once
	workers sync.WaitGroup
	tally   tally

	mu    sync.Mutex
	ended time.Time
}

// Start sends requests of both kinds until Stop. It returns an error for invalid options.
func Start(options Options) (*Load, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	l := &Load{options: options, began: time.Now(), stop: make(chan struct{})}
	for _, kind := range []Kind{KeepAlive, OneShot} {
		for n := range options.Workers {
			l.workers.Go(func() { l.work(kind, n) })
		}
	}
	return l, nil
}

func (o *Options) complete() error {
	address, err := netip.ParseAddrPort(o.Address)
	if err != nil {
		return fmt.Errorf(`address %q: %w; give "<ip>:<port>"`, o.Address, err)
	}
	if !address.Addr().IsLoopback() {
		return fmt.Errorf("address %s: load is sent to 127.0.0.0/8 only", address)
	}
	if o.Workers < 1 || o.Workers > maxWorkers {
		return fmt.Errorf("workers %d: use 1 to %d", o.Workers, maxWorkers)
	}
	if fits := o.Rate >= 1 && o.Rate <= maxRate; !fits && o.Rate != 0 {
		return fmt.Errorf("rate %g: use 1 to %d requests a second, or 0 for no limit", o.Rate, maxRate)
	}
	if o.Timeout < 0 {
		return fmt.Errorf("timeout %s: use a positive duration", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if len(o.Paths) == 0 {
		o.Paths = []string{"/"}
	}
	for _, path := range o.Paths {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \t\r\n") {
			return fmt.Errorf("path %q: %w", path, errPath)
		}
	}
	return nil
}

var errPath = errors.New(`give one that starts with "/" and has no blanks`)

// Report returns the outcomes of the requests that have ended.
func (l *Load) Report() *Report {
	report := l.tally.snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.ended
	if end.IsZero() {
		end = time.Now()
	}
	report.Took = end.Sub(l.began)
	return report
}

// Stop waits for open requests, sends no more, and returns the outcomes of all requests. It
// takes at most the timeout of a request.
func (l *Load) Stop() *Report {
	l.once.Do(func() { close(l.stop) })
	l.workers.Wait()
	l.mu.Lock()
	if l.ended.IsZero() {
		l.ended = time.Now()
	}
	l.mu.Unlock()
	return l.Report()
}

// work runs worker n of a kind.
func (l *Load) work(kind Kind, n int) {
	c := &connection{kind: kind, address: l.options.Address, timeout: l.options.Timeout}
	defer c.close()
	due := newSchedule(l.began, l.options.Rate, l.options.Workers, n)
	// Workers begin at different paths, so that they do not all request the slow
	// path together.
	for turn := n; ; turn++ {
		at, ok := due.wait(l.stop)
		if !ok {
			return
		}
		o := Outcome{Kind: kind, At: at, Path: l.options.Paths[turn%len(l.options.Paths)]}
		c.send(o.Path, &o)
		o.Latency = time.Since(at)
		l.tally.count(o)
		if l.options.Record != nil {
			l.options.Record(o)
		}
	}
}

// schedule determines when the requests of a worker are due.
type schedule struct {
	next     time.Time
	interval time.Duration // 0: at once
}

// newSchedule divides the rate evenly: every worker has its share, offset from the
// previous worker.
func newSchedule(began time.Time, rate float64, workers, n int) *schedule {
	if rate == 0 {
		return &schedule{}
	}
	interval := time.Duration(float64(workers) / rate * float64(time.Second))
	return &schedule{next: began.Add(interval * time.Duration(n) / time.Duration(workers)), interval: interval}
}

// wait waits until the next request is due and returns that time; false when the load has
// been stopped. It does not wait for requests that are overdue.
func (s *schedule) wait(stop <-chan struct{}) (time.Time, bool) {
	select {
	case <-stop:
		return time.Time{}, false
	default:
	}
	now := time.Now()
	if s.interval == 0 {
		return now, true
	}
	at := s.next
	s.next = s.next.Add(s.interval)
	if !at.After(now) {
		return at, true
	}
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-stop:
		return time.Time{}, false
	case <-timer.C:
		return at, true
	}
}
