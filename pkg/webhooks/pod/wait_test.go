package pod_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/pod"
	"github.com/podops-dev/podops/test/builders"
	realclock "k8s.io/utils/clock"
)

const begun = "1767225600000000000"

// requestedBy returns a pod whose delete was requested by a user.
func requestedBy(name, user string) *builders.PodBuilder {
	request := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorClient, User: user}
	built := builders.MakePod(name).Available().OwnedBy(replicaSet).Waiting("pod-delete", "delete", builders.Epoch).
		Label(appsv1alpha1.OperatingLabelPrefix+"/pod-delete", begun)
	return built.Annotation(appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(request.Begin(built.Obj(), begun)))
}

// withheldPod returns it after a rule has withheld it.
func withheldPod(name, user string) *corev1.Pod {
	return requestedBy(name, user).Annotation(appsv1alpha1.DetailAnnotationKey("web"),
		`{"stage":"PreCheck","rejectInfo":[{"ruleName":"approved","reason":"LabelMismatch: label approved is missing"}]}`).Obj()
}

// changing changes the cache when a request begins to wait.
type changing struct {
	cache  client.Client
	after  time.Duration
	change func(ctx context.Context, c client.Client) error
	wait   sync.WaitGroup

	ended []deferreddelete.Lapse
}

func (c *changing) Defer(types.NamespacedName, types.UID, deferreddelete.Request) {
	c.wait.Go(func() {
		time.Sleep(c.after)
		if err := c.change(context.Background(), c.cache); err != nil {
			panic(err)
		}
	})
}

func (c *changing) Ended(_ types.NamespacedName, _ types.UID, lapse deferreddelete.Lapse) {
	c.ended = append(c.ended, lapse)
}

func cacheOf(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(append(objects, newSet())...).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).Build()
}

// TestARequestWaitsForItsPod shows what the client of a delete gets for each end of its wait, and when.
func TestARequestWaitsForItsPod(t *testing.T) {
	update := func(changed *corev1.Pod) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error { return c.Update(ctx, changed) }
	}
	remove := func(ctx context.Context, c client.Client) error { return c.Delete(ctx, owned().Obj()) }
	for name, tc := range map[string]struct {
		cached      *corev1.Pod // owned without it
		after       time.Duration
		change      func(context.Context, client.Client) error
		live        []client.Object
		wantCode    int32 // 0: it passes
		wantMessage string
		within      time.Duration
		leaves      time.Duration // when its client goes away
		ended       []deferreddelete.Lapse
	}{
		"the pod may be operated on": {
			after: 3 * time.Second, change: update(owned().Allowed("pod-delete", "delete").Obj()), within: 4 * time.Second,
			ended: []deferreddelete.Lapse{deferreddelete.LapseKept},
		},
		"the request of another user was refused": {
			cached: withheldPod("web-0", "joe"), after: 3 * time.Second, change: update(owned().Allowed("pod-delete", "delete").Obj()), within: 4 * time.Second,
			ended: []deferreddelete.Lapse{deferreddelete.LapseKept},
		},
		"its last request was refused": {
			cached: withheldPod("web-0", user), change: func(context.Context, client.Client) error { return nil }, wantCode: http.StatusTooManyRequests,
			wantMessage: "PodOps holds this delete: web/approved withholds it (LabelMismatch: label approved is missing). It is not carried out later. " +
				"kubectl podops delete repeats it; or have the pod deleted once its rules permit it: kubectl label pod web-0 -n default collaset.kusionstack.io/to-delete=true, or a PodOperation",
		},
		"its client goes away": {
			after: time.Hour, change: func(context.Context, client.Client) error { return nil }, leaves: 2 * time.Second, within: 2 * time.Second,
			wantCode: http.StatusTooManyRequests, ended: []deferreddelete.Lapse{deferreddelete.LapseAbandoned},
			wantMessage: "PodOps holds this delete: pod web-0 is being prepared, and its traffic goes off. " +
				"Repeat the request within 15s, as kubectl podops delete does, or its traffic goes on again",
		},
		"a rule withholds it": {
			after: time.Second, change: update(withheldPod("web-0", user)), within: 2 * time.Second, wantCode: http.StatusTooManyRequests,
			wantMessage: "PodOps holds this delete: web/approved withholds it (LabelMismatch: label approved is missing). It is not carried out later. " +
				"kubectl podops delete repeats it; or have the pod deleted once its rules permit it: kubectl label pod web-0 -n default collaset.kusionstack.io/to-delete=true, or a PodOperation",
		},
		"it takes too long": {
			after: time.Hour, change: func(context.Context, client.Client) error { return nil }, within: 11 * time.Second, wantCode: http.StatusTooManyRequests,
			wantMessage: "PodOps holds this delete: pod web-0 is being prepared, and its traffic goes off. " +
				"Repeat the request within 15s, as kubectl podops delete does, or its traffic goes on again",
		},
		"connections are left": {
			after: time.Second, within: 11 * time.Second, wantCode: http.StatusTooManyRequests,
			change: func(ctx context.Context, c client.Client) error {
				pod := owned().Preparing("pod-delete", "delete").Gate(false).UnreadyByGate(builders.Epoch).
					Annotation(appsv1alpha1.DrainEndpointAnnotationKey, ":8081/drain").Obj()
				return errors.Join(c.Status().Update(ctx, pod.DeepCopy()), c.Update(ctx, pod))
			},
			wantMessage: "PodOps holds this delete: pod web-0 is being prepared, and waits up to 30s for the drain endpoint :8081/drain to confirm that no connection is left. " +
				"Repeat the request within 15s, as kubectl podops delete does, or its traffic goes on again",
		},
		"the pod is deleted meanwhile":         {after: time.Second, change: remove, within: 2 * time.Second, wantCode: http.StatusNotFound, wantMessage: "pod web-0 with the UID web-0-uid is gone"},
		"the pod is not under PodOps any more": {after: time.Second, change: remove, live: []client.Object{owned().Uncontrolled().Obj()}, within: 2 * time.Second},
		"another pod has the name in the meantime": {
			after: time.Second, change: remove, live: []client.Object{owned().UID("later").Obj()}, within: 2 * time.Second,
			wantCode: http.StatusNotFound, wantMessage: "pod web-0 with the UID web-0-uid is gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cached := tc.cached
				if cached == nil {
					cached = owned().Obj()
				}
				cache := cacheOf(t, cached)
				deferrer := &changing{cache: cache, after: tc.after, change: tc.change}
				handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cacheOf(t, tc.live...), deferrer, pod.NewWaits(10*time.Second, realclock.RealClock{})))
				began := time.Now()
				ctx, cancel := context.WithCancel(clientauth.WithVerified(t.Context(), true))
				defer cancel()
				if tc.leaves > 0 {
					time.AfterFunc(tc.leaves, cancel)
				}
				response := handler.Handle(ctx, byUser(t, "web-0"))
				got := visibleOf(response)
				if got.Allowed != (tc.wantCode == 0) || !got.Allowed && (got.Code != tc.wantCode || got.Message != tc.wantMessage) {
					t.Errorf("got %+v, want %d: %s", got, tc.wantCode, tc.wantMessage)
				}
				if got.Code == http.StatusTooManyRequests && !strings.Contains(tc.wantMessage, ": "+response.Result.Details.Causes[0].Message+". ") {
					t.Errorf("the causes are %+v, want the reason without the advice", response.Result.Details.Causes)
				}
				if took := time.Since(began); took > tc.within {
					t.Errorf("it waited for %s, want at most %s", took, tc.within)
				}
				deferrer.wait.Wait()
				if diff := cmp.Diff(tc.ended, deferrer.ended); diff != "" {
					t.Errorf("ended (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// byUser returns the delete of a pod by a user.
func byUser(t *testing.T, name string) admission.Request {
	t.Helper()
	req := deleting(t, builders.MakePod(name).Available().OwnedBy(replicaSet).Obj())
	req.Name, req.UserInfo.Username = name, user
	return req
}

// TestAnotherReviewOfARequest shows that the second review of a request does not wait again.
func TestAnotherReviewOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got deferrals
		cache := cacheOf(t, owned().Obj())
		handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, &got, pod.NewWaits(10*time.Second, realclock.RealClock{})))
		ctx := clientauth.WithVerified(t.Context(), true)
		first := visibleOf(handler.Handle(ctx, byUser(t, "web-0")))
		began := time.Now()
		second := visibleOf(handler.Handle(ctx, byUser(t, "web-0")))
		if second.Message != first.Message || time.Since(began) > 0 || len(got) != 1 {
			t.Errorf("the second review got %+v after %s, want %+v at once; deferrals %v", second, time.Since(began), first, got)
		}
		time.Sleep(5 * time.Second)
		handler.Handle(ctx, byUser(t, "web-0"))
		if len(got) != 2 {
			t.Errorf("deferrals %v, want the repeated request, too", got)
		}
	})
}

// TestAnIntervalThatIsKnown shows that a client that repeats its requests rarely has longer to repeat the next.
func TestAnIntervalThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got deferrals
		cache := cacheOf(t, owned().Obj())
		handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, &got, pod.NewWaits(10*time.Second, realclock.RealClock{})))
		for _, after := range []time.Duration{0, time.Minute, deferreddelete.MaxLapse} {
			time.Sleep(after)
			handler.Handle(clientauth.WithVerified(t.Context(), true), byUser(t, "web-0"))
		}
		const requested = "web-0-uid Delete Client"
		if diff := cmp.Diff(deferrals{requested, requested + " after 1m0s", requested}, got); diff != "" {
			t.Errorf("deferrals (-want +got):\n%s", diff)
		}
	})
}

// TestAClientThatLooksForAnyPod shows that a user whose request was held, and who requests the removal of the next pod
// of the owner instead, gets no second one.
func TestAClientThatLooksForAnyPod(t *testing.T) {
	for name, tc := range map[string]struct {
		other *corev1.Pod
		want  string // part of the message
	}{
		"the first is withheld":      {other: withheldPod("web-1", user), want: "jane has requested the removal of pod web-1 of the same owner"},
		"the first waits, too":       {other: requestedBy("web-1", user).Annotation("x", "y").Obj(), want: "pod web-0 is being prepared"},
		"another user's is withheld": {other: withheldPod("web-1", "joe"), want: "pod web-0 is being prepared"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The record of the request is as old as the bubble.
				cache := cacheOf(t, owned().Obj(), tc.other)
				handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, &deferrals{}, pod.NewWaits(10*time.Second, realclock.RealClock{})))
				got := visibleOf(handler.Handle(clientauth.WithVerified(t.Context(), true), byUser(t, "web-0")))
				if got.Code != http.StatusTooManyRequests || !strings.Contains(got.Message, tc.want) {
					t.Errorf("got %+v, want %q", got, tc.want)
				}
			})
		})
	}
}

// TestWaitsAreBounded shows that the requests beyond the bounds get 429 at once, and that one user, or one namespace,
// leaves room for others. A request that is repeated then keeps its pod in its lifecycle.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 120
		var objects []client.Object
		for i := range each + 1 {
			objects = append(objects, builders.MakePod(fmt.Sprint("web-", i)).Available().Obj())
		}
		cache := cacheOf(t, objects...)
		var begun counter
		handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, &begun, pod.NewWaits(10*time.Second, realclock.RealClock{})))
		ctx := clientauth.WithVerified(t.Context(), true)
		var waiting sync.WaitGroup
		for i := range each {
			waiting.Go(func() { handler.Handle(ctx, byUser(t, fmt.Sprint("web-", i))) })
		}
		synctest.Wait()
		began := time.Now()
		got := visibleOf(handler.Handle(ctx, byUser(t, fmt.Sprint("web-", each))))
		if got.Code != http.StatusTooManyRequests || !strings.Contains(got.Message, "too many requests") || time.Since(began) > 0 {
			t.Errorf("got %+v after %s, want 429 at once", got, time.Since(began))
		}
		if got := begun.requests.Load(); got != each {
			t.Errorf("%d requests begin a lifecycle, want the %d that wait", got, each)
		}
		repeated := deleting(t, requestedBy("web-begun", user).Obj())
		repeated.Name, repeated.UserInfo.Username = "web-begun", user
		if got := visibleOf(handler.Handle(ctx, repeated)); !strings.Contains(got.Message, "too many requests") || begun.requests.Load() != each+1 {
			t.Errorf("got %+v for a request that is repeated, and %d requests are recorded, want %d", got, begun.requests.Load(), each+1)
		}
		waiting.Wait()
		if got := visibleOf(handler.Handle(ctx, byUser(t, fmt.Sprint("web-", each)))); !strings.Contains(got.Message, "is being prepared") {
			t.Errorf("got %+v after the others, want to wait", got)
		}
	})
}

// TestRepetitionsLeavePlaces shows that repetitions take half of the places, and that requests do not end together.
func TestRepetitionsLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const half = 60
		objects := []client.Object{builders.MakePod("web-new").Available().Obj()}
		for i := range half + 1 {
			objects = append(objects, requestedBy(fmt.Sprint("web-", i), user).Obj())
		}
		cache := cacheOf(t, objects...)
		var begun counter
		handler := pod.NewDeleteDeferrer(deferConfig(t, cache, cache, &begun, pod.NewWaits(10*time.Second, realclock.RealClock{})))
		ctx := clientauth.WithVerified(t.Context(), true)
		repeat := func(i int) string {
			request := deleting(t, objects[i+1].(*corev1.Pod))
			request.Name, request.UserInfo.Username = fmt.Sprint("web-", i), user
			return visibleOf(handler.Handle(ctx, request)).Message
		}
		began := time.Now()
		ends := make([]time.Duration, half)
		var waiting sync.WaitGroup
		for i := range half {
			waiting.Go(func() { repeat(i); ends[i] = time.Since(began) })
		}
		synctest.Wait()
		if got := repeat(half); !strings.Contains(got, "too many requests") || time.Since(began) > 0 {
			t.Errorf("a repetition beyond the half of the places gets %q after %s, want 429 at once", got, time.Since(began))
		}
		if got := visibleOf(handler.Handle(ctx, byUser(t, "web-new"))); !strings.Contains(got.Message, "is being prepared") {
			t.Errorf("a first request gets %q, want to wait", got.Message)
		}
		waiting.Wait()
		slices.Sort(ends)
		if first, last := ends[0], ends[half-1]; first < 7500*time.Millisecond || last > 10*time.Second || last-first < time.Second {
			t.Errorf("requests end after %s to %s, want 7.5s to 10s, not together", first, last)
		}
	})
}

// counter counts requests.
type counter struct{ requests atomic.Int64 }

func (*counter) Ended(types.NamespacedName, types.UID, deferreddelete.Lapse) {}

func (c *counter) Defer(types.NamespacedName, types.UID, deferreddelete.Request) { c.requests.Add(1) }
