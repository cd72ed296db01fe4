package podindex

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// changes are the events of a podStream since a list, for the watch that continues the list. The
// queue of events that the watcher has not received yet has no bound, as in the handlers of an
// informer. Methods of a nil *changes do nothing.
type changes struct {
	version string
	results chan watch.Event
	stopped chan struct{}
	stop    sync.Once

	mu      sync.Mutex
	pending []watch.Event
	started bool

	// more wakes send after an event was added.
	more chan struct{}
}

var _ watch.Interface = &changes{}

func newChanges(version string) *changes {
	return &changes{version: version, results: make(chan watch.Event), stopped: make(chan struct{}), more: make(chan struct{}, 1)}
}

// add appends an event, unless the watch has been stopped.
func (c *changes) add(event watch.Event) {
	if c == nil || c.isStopped() {
		return
	}
	c.mu.Lock()
	c.pending = append(c.pending, event)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// start begins to send events if they continue the list of this resourceVersion, and reports
// whether they do.
func (c *changes) start(version string) bool {
	if c == nil || c.version != version || c.isStopped() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return false
	}
	c.started = true
	go c.send()
	return true
}

// send sends events until the watch is stopped.
func (c *changes) send() {
	defer close(c.results)
	for {
		for _, event := range c.take() {
			select {
			case c.results <- event:
			case <-c.stopped:
				return
			}
		}
		select {
		case <-c.more:
		case <-c.stopped:
			return
		}
	}
}

func (c *changes) take() []watch.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.pending
	c.pending = nil
	return taken
}

func (c *changes) isStopped() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// Stop implements watch.Interface.
func (c *changes) Stop() {
	if c != nil {
		c.stop.Do(func() { close(c.stopped) })
	}
}

// ResultChan implements watch.Interface.
func (c *changes) ResultChan() <-chan watch.Event { return c.results }
