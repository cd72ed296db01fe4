package pod

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Bounds of the requests that wait at a time: in all, of each user, in each namespace, and the bytes of
// their reviews.
const (
	maxWaits      = 200
	maxWaitsEach  = 120
	maxWaitsBytes = 8 << 20
)

const (
	// pollInterval is the time between two looks at a pod in the cache.
	pollInterval = 50 * time.Millisecond

	// heldFor is for how long the answer to a request is kept: the API server sends another review of a
	// DELETE that was rejected if the pod has changed meanwhile.
	heldFor = time.Second
)

// Waits bounds the requests that wait in admission on this replica. It is safe for concurrent use.
type Waits struct {
	wait  time.Duration
	clock clock.WithTicker

	mu         sync.Mutex
	bytes      int
	requests   int
	users      map[string]int
	namespaces map[string]int
	held       map[waitKey]heldAnswer
}

// waitKey is a request: the UID of its pod, its user, and its method.
type waitKey struct{ uid, user, method string }

// heldAnswer is the response with which a request was rejected.
type heldAnswer struct {
	response admission.Response
	at       time.Time
}

// NewWaits returns Waits in which each request may wait for a time.
func NewWaits(wait time.Duration, clk clock.WithTicker) *Waits {
	return &Waits{wait: wait, clock: clk, users: map[string]int{}, namespaces: map[string]int{}, held: map[waitKey]heldAnswer{}}
}

// enter reports whether another request may wait. If it may, leave must be called once.
func (w *Waits) enter(user, namespace string, bytes int) (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests >= maxWaits || w.users[user] >= maxWaitsEach || w.namespaces[namespace] >= maxWaitsEach || w.bytes+bytes > maxWaitsBytes {
		return nil, false
	}
	w.add(user, namespace, 1, bytes)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.add(user, namespace, -1, -bytes)
	}, true
}

// add changes the counts. The caller holds the lock.
func (w *Waits) add(user, namespace string, requests, bytes int) {
	w.requests += requests
	w.bytes += bytes
	for _, count := range []struct {
		of  map[string]int
		key string
	}{{w.users, user}, {w.namespaces, namespace}} {
		if count.of[count.key] += requests; count.of[count.key] == 0 {
			delete(count.of, count.key)
		}
	}
}

// hold keeps the answer to a request.
func (w *Waits) hold(key waitKey, response admission.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for other, answer := range w.held {
		if now.Sub(answer.at) >= heldFor {
			delete(w.held, other)
		}
	}
	if len(w.held) < maxWaits {
		w.held[key] = heldAnswer{response: response, at: now}
	}
}

// heldBefore returns the answer to a request that was rejected a moment ago.
func (w *Waits) heldBefore(key waitKey) (response admission.Response, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer, ok := w.held[key]
	return answer.response, ok && w.clock.Since(answer.at) < heldFor
}
