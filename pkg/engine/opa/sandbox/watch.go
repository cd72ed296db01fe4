package sandbox

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// minCheck is the shortest interval between two readings of a worker's CPU time.
const minCheck = time.Millisecond

// Why a watch has killed a worker.
var (
	errExpired = errors.New("the worker used up its CPU time")
	errStarved = fmt.Errorf("%w: the machine was too busy", opa.ErrNotReached)
)

// allowance is the CPU time that a worker has until it sends or receives a message, and the latest time for it.
type allowance struct {
	cpu    time.Duration
	latest time.Time
}

// watch kills a worker that has used up its allowance: its parent waits for it in a system call.
type watch struct {
	used func() time.Duration
	kill func()

	mu      sync.Mutex
	timer   *time.Timer
	running bool
	limits  allowance
	before  time.Duration

	// reason is why the worker was killed.
	reason error
}

// begin watches the worker.
func (w *watch) begin(limits allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if starved := time.Now().Add(busyFactor * limits.cpu); starved.Before(limits.latest) {
		limits.latest = starved
	}
	w.running, w.limits, w.before = true, limits, w.used()
	if w.timer == nil {
		w.timer = time.AfterFunc(limits.cpu, w.check)
		return
	}
	w.timer.Reset(limits.cpu)
}

// end stops watching. It returns why the worker was killed, or the given error.
func (w *watch) end(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	w.timer.Stop()
	if w.reason != nil {
		return w.reason
	}
	return err
}

// check kills the worker, or checks again later.
func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	left := w.limits.cpu - (w.used() - w.before)
	switch {
	case left <= 0:
		w.reason = errExpired
	case !time.Now().Before(w.limits.latest):
		w.reason = errStarved
	default:
		w.timer.Reset(max(minCheck, min(left, time.Until(w.limits.latest))))
		return
	}
	w.running = false
	w.kill()
}
