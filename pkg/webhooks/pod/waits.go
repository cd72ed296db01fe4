package pod

import (
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// Bounds of the requests that wait at a time: in all, of each user, in each namespace, and the bytes of
// their reviews. Repetitions may take half of each, so that a first request finds a place.
const (
	maxWaits      = 200
	maxWaitsEach  = 120
	maxWaitsBytes = 8 << 20
)

const (
	// pollInterval is the time between two looks at a pod in the cache.
	pollInterval = 50 * time.Millisecond

	// heldFor is for how long a request gets the answer to the request before it: the API server sends another
	// review of a DELETE that was rejected if the pod has changed meanwhile.
	heldFor = time.Second

	// answersBytes bounds the memory of answers with 429. The answer that is not in it follows from the pod.
	answersBytes = 1 << 20
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
	pods       map[string]int

	// answers has the last answer with 429 to each user for each pod, while no later request waits.
	answers *fairshare.Cache[waitKey, heldAnswer]
}

// waitKey is the user of a request, and the UID of its pod.
type waitKey struct{ uid, user string }

// heldAnswer is the response with which a request was rejected.
type heldAnswer struct {
	method   deferreddelete.Method
	response admission.Response
	at       time.Time
}

// NewWaits returns Waits in which each request may wait for a time.
func NewWaits(wait time.Duration, clk clock.WithTicker) *Waits {
	return &Waits{
		wait: wait, clock: clk, users: map[string]int{}, namespaces: map[string]int{}, pods: map[string]int{},
		answers: fairshare.NewCache[waitKey, heldAnswer](answersBytes),
	}
}

// enter reports whether another request may wait, which is a repetition or not. If it may, leave must be called once.
func (w *Waits) enter(user, namespace, pod string, bytes int, repeated bool) (leave func(), ok bool) {
	share := 1
	if repeated {
		share = 2
	}
	each := maxWaitsEach / share
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests >= maxWaits/share || w.users[user] >= each || w.namespaces[namespace] >= each || w.bytes+bytes > maxWaitsBytes/share {
		return nil, false
	}
	w.add(user, namespace, pod, 1, bytes)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.add(user, namespace, pod, -1, -bytes)
	}, true
}

// add changes the counts. The caller holds the lock.
func (w *Waits) add(user, namespace, pod string, requests, bytes int) {
	w.requests += requests
	w.bytes += bytes
	for _, count := range []struct {
		of  map[string]int
		key string
	}{{w.users, user}, {w.namespaces, namespace}, {w.pods, pod}} {
		if count.of[count.key] += requests; count.of[count.key] == 0 {
			delete(count.of, count.key)
		}
	}
}

// waitsAnother reports whether more than one request for a pod waits.
func (w *Waits) waitsAnother(pod string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[pod] > 1
}

// hold keeps the answer to a request.
func (w *Waits) hold(namespace string, key waitKey, method deferreddelete.Method, response admission.Response) {
	bytes := int64(len(key.uid) + len(key.user))
	if response.Result != nil {
		bytes += int64(2 * len(response.Result.Message)) // and the cause
	}
	w.answers.Add(namespace, key, heldAnswer{method: method, response: response, at: w.clock.Now()}, bytes)
}

// bound returns for how long a request for a pod may wait: up to a quarter shorter for some pods, so that clients that
// began together do not repeat together.
func (w *Waits) bound(pod string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod))
	return w.wait - w.wait/4*time.Duration(hash.Sum32()%256)/256
}

// heldBefore returns the answer to a request that was rejected a moment ago.
func (w *Waits) heldBefore(key waitKey, method deferreddelete.Method) (response admission.Response, ok bool) {
	answer, ok := w.answers.Get(key)
	return answer.response, ok && answer.method == method && w.clock.Since(answer.at) < heldFor
}

// refusal returns what is remembered of a user's last request for a pod.
func (w *Waits) refusal(key waitKey) deferreddelete.Refusal {
	answer, ok := w.answers.Get(key)
	return deferreddelete.Refusal{Refused: ok, Age: w.clock.Since(answer.at)}
}
