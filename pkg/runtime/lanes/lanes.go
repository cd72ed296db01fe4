package lanes

import (
	"cmp"
	"sync"
	"time"
)

// Defaults of Options.
const (
	defaultPlaces = 2
	defaultRate   = 0.5
	defaultBurst  = 50 * time.Millisecond
	defaultMemory = 5 * time.Minute
)

// Options of Lanes. Fields that are zero take their defaults.
type Options struct {
	// Places is the number of rounds that run in the slow lane at the same time. Default: 2.
	Places int

	// Rate is the CPU time, in seconds, that all namespaces together may use in a second
	// before they are moved to the slow lane. Default: 0.5.
	Rate float64

	// Burst is the debt up to which a namespace is in the fast lane. Default: 50 ms.
	Burst time.Duration

	// Memory bounds debts: a namespace that uses no CPU time for this time is in the fast lane
	// again. Default: 5 min.
	Memory time.Duration
}

// Lane is how a round was admitted.
type Lane int

const (
	// Fast is the lane of namespaces within their share.
	Fast Lane = iota

	// Slow is the lane of all others. Its places are few.
	Slow
)

// Lanes holds the debts of namespaces and the rounds that run. It is safe for concurrent use.
type Lanes struct {
	options Options

	mu sync.Mutex

	// debts by namespace, as of settled. Paid debts are missing.
	debts   map[string]time.Duration
	settled time.Time

	// running are the rounds that were admitted and have not left.
	running map[string]Lane

	// reserved are the namespaces that Leave returned and that have not entered since. Each
	// holds a place.
	reserved map[string]bool

	// parked are the namespaces that wait for a place, with the order in which they came.
	parked map[string]int
	came   int

	// needSlow are the namespaces that need a place independent of their debt.
	needSlow map[string]bool
}

// New returns Lanes without debts.
func New(options Options) *Lanes {
	options.Places = cmp.Or(options.Places, defaultPlaces)
	options.Rate = cmp.Or(options.Rate, defaultRate)
	options.Burst = cmp.Or(options.Burst, defaultBurst)
	options.Memory = cmp.Or(options.Memory, defaultMemory)
	return &Lanes{
		options: options, debts: map[string]time.Duration{}, running: map[string]Lane{},
		reserved: map[string]bool{}, parked: map[string]int{}, needSlow: map[string]bool{},
	}
}

// Enter admits a round of a namespace, which must have no other round running. Without a
// place for it, Enter returns false and parks the namespace: a later Leave returns it.
func (l *Lanes) Enter(namespace string, now time.Time) (Lane, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(now)
	switch {
	case l.reserved[namespace]:
		delete(l.reserved, namespace)
		l.admit(namespace, Slow)
		return Slow, true
	case !l.owes(namespace):
		l.admit(namespace, Fast)
		return Fast, true
	case l.hasPlace():
		l.admit(namespace, Slow)
		return Slow, true
	}
	if _, waits := l.parked[namespace]; !waits {
		l.came++
		l.parked[namespace] = l.came
	}
	return Slow, false
}

// GoOn charges a running round with the CPU time that it used, and reports whether it may use
// more, and in which lane. A round whose namespace has used its share continues in the slow
// lane if a place is free. Otherwise it must end soon.
func (l *Lanes) GoOn(namespace string, used time.Duration, now time.Time) (Lane, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.charge(namespace, used, now)
	if l.running[namespace] == Fast && l.owes(namespace) {
		return l.slow(namespace)
	}
	return l.running[namespace], true
}

// EnterSlow moves a running round to the slow lane, for work that is known to be expensive. If
// no place is free it returns false; the namespace gets a place before its next round.
func (l *Lanes) EnterSlow(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[namespace] == Slow {
		return true
	}
	_, ok := l.slow(namespace)
	if !ok {
		l.needSlow[namespace] = true
	}
	return ok
}

// Leave ends a round and charges it with the CPU time since the last GoOn. The places that are
// free then are reserved for the namespaces that it returns, which the caller must queue.
func (l *Lanes) Leave(namespace string, used time.Duration, now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.charge(namespace, used, now)
	delete(l.running, namespace)
	var next []string
	for len(l.parked) > 0 && l.hasPlace() {
		first := l.first()
		delete(l.parked, first)
		l.reserved[first] = true
		next = append(next, first)
	}
	return next
}

// Parked returns how many namespaces wait for a place in the slow lane.
func (l *Lanes) Parked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parked)
}

func (l *Lanes) admit(namespace string, lane Lane) {
	l.running[namespace] = lane
	delete(l.parked, namespace)
	if lane == Slow {
		delete(l.needSlow, namespace)
	}
}

// slow moves a running round to the slow lane if there is a place.
func (l *Lanes) slow(namespace string) (Lane, bool) {
	if !l.hasPlace() {
		return Fast, false
	}
	l.admit(namespace, Slow)
	return Slow, true
}

// owes reports whether rounds of a namespace belong to the slow lane. A parked namespace stays
// there until its turn: many whose debts end at the same moment must not enter at once.
func (l *Lanes) owes(namespace string) bool {
	_, waits := l.parked[namespace]
	return waits || l.needSlow[namespace] || l.debts[namespace] > l.options.Burst
}

// hasPlace reports whether a place of the slow lane is neither taken nor reserved.
func (l *Lanes) hasPlace() bool {
	taken := len(l.reserved)
	for _, lane := range l.running {
		if lane == Slow {
			taken++
		}
	}
	return taken < l.options.Places
}

// first returns the parked namespace with the smallest debt, and among equals the namespace that
// came first.
func (l *Lanes) first() string {
	best := ""
	for namespace, came := range l.parked {
		if best == "" || cmp.Or(cmp.Compare(l.debts[namespace], l.debts[best]), cmp.Compare(came, l.parked[best])) < 0 {
			best = namespace
		}
	}
	return best
}

// share returns the part of the rate for each namespace with a debt.
func (l *Lanes) share() float64 { return l.options.Rate / float64(max(1, len(l.debts))) }

// settle subtracts the shares since the last call from the debts. No debt exceeds the CPU time
// that the share pays within Options.Memory: with more namespaces the share is smaller, and so
// is the largest debt.
func (l *Lanes) settle(now time.Time) {
	passed := now.Sub(l.settled)
	if l.settled.IsZero() || passed < 0 {
		passed = 0
	}
	l.settled = now
	share := l.share()
	paid := time.Duration(float64(passed) * share)
	most := l.options.Burst + time.Duration(float64(l.options.Memory)*share)
	for namespace, debt := range l.debts {
		if debt <= paid {
			delete(l.debts, namespace)
			continue
		}
		l.debts[namespace] = min(debt-paid, most)
	}
}

func (l *Lanes) charge(namespace string, used time.Duration, now time.Time) {
	l.settle(now)
	if used > 0 {
		l.debts[namespace] += used
	}
}
