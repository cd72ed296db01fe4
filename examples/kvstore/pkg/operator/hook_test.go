package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// leadership is the leadership of a store. It moves with the second observation after a call.
type leadership struct {
	mu     sync.Mutex // guards the fields below
	leader string
	next   []string // leaders of the coming observations
	moves  []plan.Move
	stuck  bool
	fresh  int
	voters []string
}

func (l *leadership) Look(context.Context, map[string]string) plan.Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next) > 0 {
		l.leader, l.next = l.next[0], l.next[1:]
	}
	return plan.Observation{Leader: l.leader, Members: l.voters, Voters: l.voters}
}

func (l *leadership) Move(_ context.Context, _ map[string]string, move plan.Move) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moves = append(l.moves, move)
	switch {
	case l.stuck:
		return errors.New("no successor takes over")
	case move.From == l.leader:
		l.next = []string{"", move.To[0]}
	}
	return nil
}

func (l *leadership) Refresh(types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh++
}

// hook is a hook before a store of three members.
type hook struct {
	*simulation
	*leadership
	server *httptest.Server
}

const token = "0123456789abcdef0123456789abcdef"

func newHook(t *testing.T) *hook {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	h := &hook{simulation: ready(t, 3), leadership: &leadership{leader: "db-1", voters: []string{"db-0", "db-1", "db-2"}}}
	for namespace, token := range map[string]string{"default": token + "\n", "other": strings.ToUpper(token), "short": token[1:], "empty": ""} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operator.HookSecret}, Data: map[string][]byte{"token": []byte(token)}}
		h.must(h.api.Create(t.Context(), secret))
	}
	h.start()
	return h
}

// start starts a hook: another replica, or another process.
func (h *hook) start() {
	secrets := interceptor.NewClient(h.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch key.Namespace {
			case "down":
				return errors.New("the API server is down")
			case "forbidden":
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, nil)
			default:
				return c.Get(ctx, key, o, opts...)
			}
		},
	})
	authorize := operator.NewAuthorize(secrets)
	h.server = httptest.NewServer(operator.NewHook(h.api, h.leadership, authorize))
	h.t.Cleanup(h.server.Close)
}

// callFor returns the body of a call for pods of the store.
func (h *hook) callFor(names ...string) string {
	var resources []string
	for _, pod := range h.pods() {
		if slices.Contains(names, pod.Name) {
			resources = append(resources, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q,"new":1}`, pod.Name, pod.UID))
		}
	}
	return bodyOf(resources)
}

func bodyOf(resources []string) string {
	return `{"traceId":"4711","stage":"PreCheck","namespace":"default","new":[],"resources":[` + strings.Join(resources, ",") + `]}`
}

// answered is an answer of any status.
type answered struct {
	status      int
	retry, body string
}

// post makes a call.
func (h *hook) post(bearer, body string) answered {
	h.t.Helper()
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.server.URL, strings.NewReader(body))
	h.must(err)
	request.Header.Set("Authorization", "Bearer "+bearer)
	response, err := http.DefaultClient.Do(request)
	h.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	h.must(err)
	return answered{response.StatusCode, response.Header.Get("Retry-After"), string(text)}
}

// answer is an answer by the protocol of webhook rules.
type answer struct {
	Success       bool
	FinishedNames []string
	Message       string
}

// call makes a call for pods that is answered.
func (h *hook) call(names ...string) (a answer) {
	h.t.Helper()
	got := h.post(token, h.callFor(names...))
	if got.status != http.StatusOK {
		h.t.Fatalf("got %+v", got)
	}
	h.must(json.Unmarshal([]byte(got.body), &a))
	return a
}

func TestTheHookMovesLeadershipOnce(t *testing.T) {
	h := newHook(t)
	approved := answer{Success: true, FinishedNames: []string{"db-1"}}
	if diff := cmp.Diff(approved, h.call("db-1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.start() // the operator has ended, or another replica gets the call
	for range 3 {
		if diff := cmp.Diff(approved, h.call("db-1")); diff != "" {
			t.Errorf("repeated (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]plan.Move{{From: "db-1", To: []string{"db-0", "db-2"}}}, h.moves); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	if h.fresh != 1 {
		t.Errorf("%d requests to observe the store, want 1", h.fresh)
	}
}

// TestACallThatFollowsAnInterruptedCallContinues ends a call while leadership moves.
func TestACallThatFollowsAnInterruptedCallContinues(t *testing.T) {
	h := newHook(t)
	h.leadership.leader, h.next = "db-1", []string{"", "", "", "db-0"} // as the earlier call has left it
	if diff := cmp.Diff(answer{Success: true, FinishedNames: []string{"db-1"}}, h.call("db-1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(h.moves) > 0 {
		t.Errorf("moved again: %+v", h.moves)
	}
}

func TestTheHookApprovesSomePodsOfACall(t *testing.T) {
	h := newHook(t)
	want := answer{FinishedNames: []string{"db-0", "db-2"},
		Message: "pod db-1 leads, and no other pod can: each has no vote, is not ready, or is about to be operated on"}
	if diff := cmp.Diff(want, h.call("db-0", "db-1", "db-2")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheHookAnswersInTimeWhenLeadershipDoesNotMove has a call with less time than the hook takes at most.
func TestTheHookAnswersInTimeWhenLeadershipDoesNotMove(t *testing.T) {
	h := newHook(t)
	h.stuck = true
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, operator.HookPath, strings.NewReader(h.callFor("db-1")))
	request.Header.Set("Authorization", "Bearer "+token)
	recorded := httptest.NewRecorder()
	h.server.Config.Handler.ServeHTTP(recorded, request)
	var got answer
	h.must(json.Unmarshal(recorded.Body.Bytes(), &got))
	if diff := cmp.Diff(answer{Message: "leadership moves away from pod db-1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheHookRejectsPodsOfNoStore(t *testing.T) {
	h := newHook(t)
	body := h.post(token, `{"stage":"PreCheck","namespace":"default","resources":[{"name":"web-0","uid":"1"}]}`).body
	if !strings.Contains(body, `"success":false`) || !strings.Contains(body, "pod web-0 is no known member of a KVStoreCluster") {
		t.Errorf("got %s", body)
	}
}

// TestTheHookApprovesPodsOfAClusterThatIsGone has pods that the garbage collector deletes.
func TestTheHookApprovesPodsOfAClusterThatIsGone(t *testing.T) {
	h := newHook(t)
	cluster := h.cluster()
	cluster.Finalizers = nil
	h.must(h.api.Update(t.Context(), cluster))
	h.must(h.api.Delete(t.Context(), &kvstorev1.KVStoreCluster{ObjectMeta: cluster.ObjectMeta}))
	if got := h.call("db-0", "db-1", "db-2"); !got.Success || len(h.moves) > 0 {
		t.Errorf("got %+v, moves %+v", got, h.moves)
	}
}

func TestTheHookRefuses(t *testing.T) {
	h := newHook(t)
	elsewhere := func(namespace string) string { return strings.Replace(h.callFor("db-1"), "default", namespace, 1) }
	for sentence, tc := range map[string]struct {
		token, body string
		want        int
	}{
		"a call without a token":                       {"", h.callFor("db-1"), http.StatusUnauthorized},
		"a call with another token":                    {"1" + token[1:], h.callFor("db-1"), http.StatusUnauthorized},
		"a call with the token of another namespace":   {token, elsewhere("other"), http.StatusUnauthorized},
		"a call for a namespace without a Secret":      {token, elsewhere("none"), http.StatusUnauthorized},
		"a call for a namespace with a short token":    {token[1:], elsewhere("short"), http.StatusUnauthorized},
		"a call for a namespace with an empty token":   {"", elsewhere("empty"), http.StatusUnauthorized},
		"a call for a namespace that grants no access": {token, elsewhere("forbidden"), http.StatusUnauthorized},
		"a call that cannot be authorized now":         {token, elsewhere("down"), http.StatusServiceUnavailable},
		"a call that is no JSON":                       {token, "pods", http.StatusBadRequest},
		"a call without pods":                          {token, h.callFor(), http.StatusBadRequest},
		"a call without a namespace":                   {token, elsewhere(""), http.StatusBadRequest},
		"a call at the stage PostCheck":                {token, strings.Replace(h.callFor("db-1"), "PreCheck", "PostCheck", 1), http.StatusBadRequest},
		"a call for more pods than fit":                {token, bodyOf(slices.Repeat([]string{`{"name":"db-1"}`}, 101)), http.StatusBadRequest},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := h.post(tc.token, tc.body)
			if got.status != tc.want || (got.retry == "1") != (tc.want == http.StatusServiceUnavailable) {
				t.Errorf("want %d, got %+v", tc.want, got)
			}
		})
	}
	if len(h.moves) > 0 {
		t.Errorf("leadership was moved: %+v", h.moves)
	}
}
