package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/test/await"
)

// member is the HTTP API of a member, on an address of its own.
type member struct {
	mu     sync.Mutex
	status string
	calls  []string
}

func (m *member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Method != http.MethodGet {
		m.calls = append(m.calls, r.Method+" "+r.URL.RequestURI())
	}
	fmt.Fprint(w, m.status)
}

func (m *member) called() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// listen starts a member that reports a status.
func listen(t *testing.T, address, id, state string, term int) *member {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(plan.ClientPort)))
	if err != nil {
		t.Fatal(err)
	}
	m := &member{status: fmt.Sprintf(`{"id":%q,"state":%q,"term":%d,"members":[{"id":"db-1","voter":false},{"id":"db-0","voter":true},{"id":%q,"voter":true}]}`, id, state, term, id)}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: m}}
	server.Start()
	t.Cleanup(server.Close)
	return m
}

// TestTheLeaderOfTheHighestTermCounts has a member that was cut off, and believes that it leads.
func TestTheLeaderOfTheHighestTermCounts(t *testing.T) {
	old := listen(t, "127.91.0.1", "db-0", "Leader", 3)
	leader := listen(t, "127.91.0.2", "db-2", "Leader", 4)
	listen(t, "127.91.0.3", "db-1", "Follower", 4)
	addresses := map[string]string{"db-0": "127.91.0.1", "db-1": "127.91.0.3", "db-2": "127.91.0.2", "db-3": "127.91.0.4"}

	store := operator.NewHTTPStore(clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Start(ctx) }()
	defer func() {
		stop()
		if err := await.Receive(t, "the calls end", ended); err != nil {
			t.Error(err)
		}
	}()
	db := types.NamespacedName{Namespace: "default", Name: "db"}
	if seen := store.Observe(db, addresses); seen.Leader != "" {
		t.Fatalf("observed before any call: %+v", seen)
	}
	await.Receive(t, "an observation", store.Changed())
	seen := store.Observe(db, addresses)
	if diff := cmp.Diff(plan.Observation{At: seen.At, Leader: "db-2", Term: 4, Members: []string{"db-0", "db-1", "db-2"}, Voters: []string{"db-0", "db-2"}}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A move that was requested of an earlier leader is dropped.
	store.MoveLeader(db, plan.Move{From: "db-0", To: []string{"db-1"}})
	await.Receive(t, "the call has ended", store.Changed())
	store.MoveLeader(db, plan.Move{From: "db-2", To: []string{"db-1"}})
	await.Receive(t, "the call has ended", store.Changed())
	store.RemoveMember(db, "db-3")
	await.Receive(t, "the call has ended", store.Changed())
	if diff := cmp.Diff([]string{"POST /leader/transfer?to=db-1", "DELETE /members/db-3"}, leader.called()); diff != "" {
		t.Errorf("calls of the leader (-want +got):\n%s", diff)
	}
	if calls := old.called(); len(calls) > 0 {
		t.Errorf("calls of the earlier leader: %v", calls)
	}

	store.Forget(db)
	if seen := store.Observe(db, nil); seen.Leader != "" {
		t.Errorf("not forgotten: %+v", seen)
	}
}

// TestLeadershipIsObservedAndMovedAtOnce has no controller that observes the store.
func TestLeadershipIsObservedAndMovedAtOnce(t *testing.T) {
	leader := listen(t, "127.91.1.1", "db-2", "Leader", 4)
	addresses := map[string]string{"db-2": "127.91.1.1", "db-3": "127.91.1.9"}
	store := operator.NewHTTPStore(clock.RealClock{})
	seen := store.Look(t.Context(), addresses)
	if diff := cmp.Diff(plan.Observation{At: seen.At, Leader: "db-2", Term: 4, Members: []string{"db-0", "db-1", "db-2"}, Voters: []string{"db-0", "db-2"}}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := store.Move(t.Context(), addresses, plan.Move{From: "db-2", To: []string{"db-1"}}); err != nil {
		t.Error(err)
	}
	if err := store.Move(t.Context(), addresses, plan.Move{From: "db-0", To: []string{"db-1"}}); err == nil {
		t.Error("moved away from a pod without an address")
	}
	if diff := cmp.Diff([]string{"POST /leader/transfer?to=db-1"}, leader.called()); diff != "" {
		t.Errorf("calls of the leader (-want +got):\n%s", diff)
	}
	store.Refresh(types.NamespacedName{Namespace: "default", Name: "db"})
	if seen := store.Observe(types.NamespacedName{Namespace: "default", Name: "db"}, nil); !seen.At.IsZero() {
		t.Errorf("a store that was not observed is known: %+v", seen)
	}
}
