package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// HookPath is the path of a Hook on its server.
const HookPath = "/hooks/leadership"

const (
	// hookTimeout bounds a call: PodOps waits for 10 s.
	hookTimeout = 7 * time.Second

	// lookInterval is the time between two observations of a store whose leadership moves.
	lookInterval = 100 * time.Millisecond

	// maxHookPods bounds the pods of a call: PodOps sends 25 at most.
	maxHookPods = 100

	// maxHookMessage is how much of a message PodOps shows.
	maxHookMessage = 512

	// retrySeconds is when PodOps repeats a call that cannot be answered now: up to 3 s it is the same call.
	retrySeconds = "1"
)

// Leadership observes stores and moves their leadership. Its methods return when that is done.
type Leadership interface {
	// Look observes the store whose members have these addresses by name.
	Look(ctx context.Context, addresses map[string]string) plan.Observation

	// Move moves leadership, if the pod that it moves away from leads.
	Move(ctx context.Context, addresses map[string]string, move plan.Move) error

	// Refresh requests that the controller observes a store again.
	Refresh(cluster types.NamespacedName)
}

// Hook answers the calls of webhook rules at stage PreCheck. It approves pods that their store can do without, and moves
// leadership away from a pod before it approves it: plan.Approve decides. It has no state, so that any replica answers any
// call, and a call that is repeated continues where another has ended.
type Hook struct {
	reader     client.Reader
	leadership Leadership
	authorize  Authorize
}

// NewHook returns a Hook.
func NewHook(reader client.Reader, leadership Leadership, authorize Authorize) *Hook {
	return &Hook{reader: reader, leadership: leadership, authorize: authorize}
}

// hookCall is the part of a POST from PodOps that the hook reads.
type hookCall struct {
	TraceID   string `json:"traceId"`
	Stage     string `json:"stage"`
	Namespace string `json:"namespace"`
	Resources []struct {
		Name string    `json:"name"`
		UID  types.UID `json:"uid"`
	} `json:"resources"`
}

// hookAnswer is the answer to a POST of PodOps.
type hookAnswer struct {
	Success       bool     `json:"success"`
	FinishedNames []string `json:"finishedNames,omitempty"`
	Message       string   `json:"message,omitempty"`
}

// ServeHTTP answers one call. The server bounds its size.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), hookTimeout)
	defer stop()
	call, err := readHookCall(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if err := h.authorize(ctx, token, call.Namespace); err != nil {
		refuse(ctx, w, err)
		return
	}
	answer, err := h.answer(ctx, call)
	if err != nil {
		refuse(ctx, w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may have disconnected
}

// refuse answers a call that is not authorized, or cannot be answered now: then PodOps repeats it soon.
func refuse(ctx context.Context, w http.ResponseWriter, err error) {
	status := http.StatusUnauthorized
	if !errors.Is(err, errUnauthorized) {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", retrySeconds)
	}
	log.FromContext(ctx).Info("Refused a call of the hook", "error", err.Error())
	http.Error(w, http.StatusText(status), status)
}

// readHookCall reads and checks a call. Unknown fields are ignored, as the protocol requires.
func readHookCall(body io.Reader) (call hookCall, err error) {
	if err := json.NewDecoder(body).Decode(&call); err != nil {
		return call, fmt.Errorf("decoding the call: %w", err)
	}
	switch {
	case call.Namespace == "" || len(call.Resources) == 0:
		return call, errors.New("the call names no namespace, or no pod")
	case len(call.Resources) > maxHookPods:
		return call, fmt.Errorf("the call is for %d pods, at most %d are possible", len(call.Resources), maxHookPods)
	case call.Stage != string(appsv1alpha1.StagePreCheck):
		return call, fmt.Errorf("the stage is %.32q: leadership moves in PreCheck, before an operation", call.Stage)
	default:
		return call, nil
	}
}

// answer decides on the pods of each store.
func (h *Hook) answer(ctx context.Context, call hookCall) (hookAnswer, error) {
	targets, verdicts, err := h.stores(ctx, call)
	if err != nil {
		return hookAnswer{}, err
	}
	for cluster, pods := range targets {
		decided, err := h.approve(ctx, call.TraceID, cluster, pods)
		if err != nil {
			return hookAnswer{}, err
		}
		for name, verdict := range decided {
			verdicts[name] = verdict
		}
	}
	return newHookAnswer(verdicts), nil
}

// newHookAnswer returns the answer with the verdicts about all pods of a call.
func newHookAnswer(verdicts map[string]plan.Verdict) hookAnswer {
	answer := hookAnswer{Success: true}
	var reasons []string
	for name, verdict := range verdicts {
		if verdict.Approved {
			answer.FinishedNames = append(answer.FinishedNames, name)
			continue
		}
		answer.Success = false
		reasons = append(reasons, verdict.Reason)
	}
	slices.Sort(answer.FinishedNames)
	slices.Sort(reasons)
	answer.Message = text.Cut(strings.Join(slices.Compact(reasons), "; "), maxHookMessage)
	return answer
}

// stores returns the pods of a call by their cluster, and the verdicts about pods that are not members of a
// cluster.
func (h *Hook) stores(ctx context.Context, call hookCall) (map[types.NamespacedName][]plan.Target, map[string]plan.Verdict, error) {
	targets, verdicts := map[types.NamespacedName][]plan.Target{}, map[string]plan.Verdict{}
	for _, resource := range call.Resources {
		pod := &corev1.Pod{}
		err := h.reader.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: resource.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading pod %s: %w", resource.Name, err)
		}
		clusters := clusterFor(ctx, pod)
		if err != nil || len(clusters) == 0 {
			verdicts[resource.Name] = plan.Verdict{Reason: fmt.Sprintf("pod %s is no known member of a KVStoreCluster", resource.Name)}
			continue
		}
		cluster := clusters[0].NamespacedName
		targets[cluster] = append(targets[cluster], plan.Target{Name: resource.Name, UID: resource.UID})
	}
	return targets, verdicts, nil
}

// approve returns the verdicts about pods of one store. It moves leadership if a verdict requires it, and waits, until ctx
// ends, for the leader that follows.
func (h *Hook) approve(
	ctx context.Context, traceID string, cluster types.NamespacedName, targets []plan.Target,
) (map[string]plan.Verdict, error) {
	logger := log.FromContext(ctx).WithValues("cluster", cluster, "traceID", traceID)
	var (
		snapshot plan.Snapshot
		approval plan.Approval
	)
	err := wait.PollUntilContextCancel(ctx, lookInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if snapshot, err = h.snapshot(ctx, cluster); err != nil {
			return false, err
		}
		approval = plan.Approve(snapshot, targets)
		if move := approval.Move; move != nil {
			if err := h.leadership.Move(ctx, addresses(snapshot.Members), *move); err != nil {
				logger.Info("Leadership does not move yet", "from", move.From, "error", err.Error())
			} else {
				logger.Info("Moved leadership", "from", move.From, "term", snapshot.Store.Term)
				h.leadership.Refresh(cluster)
			}
		}
		return !approval.Open, nil
	})
	if err != nil && !wait.Interrupted(err) {
		return nil, err
	}
	for _, pod := range targets {
		verdict := approval.Verdicts[pod.Name]
		logger.Info("Decided on a pod", "pod", pod.Name, "uid", pod.UID, "approved", verdict.Approved, "reason", verdict.Reason,
			"leader", snapshot.Store.Leader, "term", snapshot.Store.Term)
	}
	return approval.Verdicts, nil
}

// snapshot reads what verdicts about the pods of a store depend on.
func (h *Hook) snapshot(ctx context.Context, cluster types.NamespacedName) (s plan.Snapshot, err error) {
	if s.Cluster, err = get(ctx, h.reader, cluster, &kvstorev1.KVStoreCluster{}); err != nil {
		return s, err
	}
	if s.StatefulSet, err = get(ctx, h.reader, cluster, &appsv1.StatefulSet{}); err != nil {
		return s, err
	}
	if s.Members, err = members(ctx, h.reader, cluster); err != nil {
		return s, err
	}
	s.Store = h.leadership.Look(ctx, addresses(s.Members))
	return s, nil
}
