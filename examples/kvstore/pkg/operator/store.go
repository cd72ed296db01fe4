package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// Bounds of calls to stores.
const (
	callTimeout    = 2 * time.Second
	callers        = 8        // stores that are called at a time
	maxAnswerBytes = 64 << 10 // of the status of a member
	maxReasonBytes = 512      // of another answer

	// observeInterval is how often a store is observed: it has no watch.
	observeInterval = 2 * time.Second

	// repeatDelay is the least time between two observations of a store.
	repeatDelay = 250 * time.Millisecond
)

// HTTPStore is a Store that calls the HTTP API of the members. It is a Runnable of the manager: the calls
// are made by goroutines of its own, so that no store holds up the worker of another cluster.
type HTTPStore struct {
	client  *http.Client
	clock   clock.PassiveClock
	changed chan event.GenericEvent
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu     sync.Mutex // guards stores
	stores map[types.NamespacedName]store
}

// store has the observations of one store, and the requested calls. It is replaced, not modified.
type store struct {
	addresses   map[string]string
	observation plan.Observation

	requested bool
	move      plan.Move
	remove    string
}

// NewHTTPStore returns an HTTPStore that does not run yet.
func NewHTTPStore(clk clock.PassiveClock) *HTTPStore {
	return &HTTPStore{
		client: &http.Client{Timeout: callTimeout}, clock: clk, changed: make(chan event.GenericEvent),
		queue:  workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		stores: map[types.NamespacedName]store{},
	}
}

// Changed has an event for each cluster whose store has changed, and for each call that has ended.
func (h *HTTPStore) Changed() <-chan event.GenericEvent { return h.changed }

// Observe implements Store.
func (h *HTTPStore) Observe(cluster types.NamespacedName, addresses map[string]string) plan.Observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, known := h.stores[cluster]
	if !known || !maps.Equal(s.addresses, addresses) {
		s.addresses = addresses
		h.stores[cluster] = s
		h.queue.Add(cluster)
	}
	return s.observation
}

// Refresh implements Store.
func (h *HTTPStore) Refresh(cluster types.NamespacedName) { h.request(cluster, plan.Move{}, "") }

// MoveLeader implements Store.
func (h *HTTPStore) MoveLeader(cluster types.NamespacedName, move plan.Move) {
	h.request(cluster, move, "")
}

// RemoveMember implements Store.
func (h *HTTPStore) RemoveMember(cluster types.NamespacedName, pod string) {
	h.request(cluster, plan.Move{}, pod)
}

// request replaces the calls that are requested of a store by others. Nothing is requested of a store that is not observed.
func (h *HTTPStore) request(cluster types.NamespacedName, move plan.Move, remove string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, known := h.stores[cluster]
	if !known {
		return
	}
	s.requested, s.move, s.remove = true, move, remove
	h.stores[cluster] = s
	h.queue.AddAfter(cluster, repeatDelay-h.clock.Since(s.observation.At))
}

// Forget implements Store.
func (h *HTTPStore) Forget(cluster types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.stores, cluster)
}

// Start makes calls until ctx ends.
func (h *HTTPStore) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for h.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	h.queue.ShutDown()
	all.Wait()
	return nil
}

// next makes the calls of one store.
func (h *HTTPStore) next(ctx context.Context) bool {
	cluster, shutdown := h.queue.Get()
	if shutdown {
		return false
	}
	defer h.queue.Done(cluster)
	s, known := h.take(cluster)
	if !known {
		return true
	}
	if err := h.change(ctx, s); err != nil {
		log.FromContext(ctx).Info("The store does not change yet", "cluster", cluster, "error", err.Error())
	}
	if h.keep(cluster, s, h.observe(ctx, s.addresses)) {
		h.notify(ctx, cluster)
	}
	h.queue.AddAfter(cluster, observeInterval)
	return true
}

// take returns a store with its requests, and removes the requests.
func (h *HTTPStore) take(cluster types.NamespacedName) (store, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, known := h.stores[cluster]
	if known {
		h.stores[cluster] = store{addresses: s.addresses, observation: s.observation}
	}
	return s, known
}

// keep records an observation, and reports whether its cluster needs another round.
func (h *HTTPStore) keep(cluster types.NamespacedName, s store, seen plan.Observation) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	current, known := h.stores[cluster]
	if !known {
		return false
	}
	current.observation = seen
	h.stores[cluster] = current
	return s.requested || s.observation.At.IsZero() || seen.Leader != s.observation.Leader || !slices.Equal(seen.Members, s.observation.Members)
}

func (h *HTTPStore) notify(ctx context.Context, cluster types.NamespacedName) {
	object := &kvstorev1.KVStoreCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	select {
	case h.changed <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// change makes the requested calls. Any member forwards the removal of another to the leader.
func (h *HTTPStore) change(ctx context.Context, s store) error {
	leader, known := s.addresses[s.observation.Leader]
	if !known {
		return nil
	}
	if s.remove != "" {
		return h.call(ctx, http.MethodDelete, leader, "/members/"+url.PathEscape(s.remove), nil)
	}
	if s.move.From != s.observation.Leader {
		return nil // it was requested before the last move
	}
	return h.Move(ctx, s.addresses, s.move)
}

// Look implements Leadership.
func (h *HTTPStore) Look(ctx context.Context, addresses map[string]string) plan.Observation {
	return h.observe(ctx, addresses)
}

// Move implements Leadership. A pod that does not lead moves nothing.
func (h *HTTPStore) Move(ctx context.Context, addresses map[string]string, move plan.Move) error {
	leader, known := addresses[move.From]
	if !known {
		return fmt.Errorf("moving leadership away from pod %s: it has no address", move.From)
	}
	var errs []error
	for _, successor := range move.To {
		err := h.call(ctx, http.MethodPost, leader, "/leader/transfer?to="+url.QueryEscape(successor), nil)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// memberStatus is the part of a member's status that the operator reads.
type memberStatus struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Term    uint64 `json:"term"`
	Members []struct {
		ID    string `json:"id"`
		Voter bool   `json:"voter"`
	} `json:"members"`
}

// observe reads the status of every member at once. The leader is the member that leads in the highest
// term: a leader that was cut off may not have noticed its successor yet.
func (h *HTTPStore) observe(ctx context.Context, addresses map[string]string) plan.Observation {
	answers := make(chan memberStatus, len(addresses))
	var all sync.WaitGroup
	for _, address := range addresses {
		all.Go(func() {
			var status memberStatus
			if err := h.call(ctx, http.MethodGet, address, "/status?brief", &status); err == nil {
				answers <- status
			}
		})
	}
	all.Wait()
	close(answers)
	seen := plan.Observation{At: h.clock.Now()}
	for status := range answers {
		if status.State != "Leader" || status.Term < seen.Term {
			continue
		}
		seen.Leader, seen.Term, seen.Members, seen.Voters = status.ID, status.Term, nil, nil
		for _, member := range status.Members {
			seen.Members = append(seen.Members, member.ID)
			if member.Voter {
				seen.Voters = append(seen.Voters, member.ID)
			}
		}
		slices.Sort(seen.Members)
		slices.Sort(seen.Voters)
	}
	return seen
}

// call makes one request, and decodes the answer into a value that is not nil.
func (h *HTTPStore) call(ctx context.Context, method, address, path string, into any) error {
	target := "http://" + net.JoinHostPort(address, strconv.Itoa(plan.ClientPort)) + path
	request, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return fmt.Errorf("calling the store: %w", err)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return fmt.Errorf("calling the store: %w", err)
	}
	defer response.Body.Close()
	body := io.LimitReader(response.Body, maxAnswerBytes)
	if response.StatusCode >= http.StatusMultipleChoices {
		reason, _ := io.ReadAll(io.LimitReader(body, maxReasonBytes))
		return fmt.Errorf("calling the store: %s %s: %s: %s", method, path, response.Status, reason)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", path, err)
	}
	return nil
}
