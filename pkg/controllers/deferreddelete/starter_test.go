package deferreddelete

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const beginPatch = `patch web-0 {"metadata":{"labels":{"operating/pod-delete":"1767225610000000000","operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`

func hold(t *testing.T, b *Starter, name string) reconcile.Result {
	t.Helper()
	b.Promise(types.NamespacedName{Namespace: "default", Name: name}, types.UID(name+"-uid"))
	result, err := b.Reconcile(t.Context(), requestFor(name))
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

func TestBegin(t *testing.T) {
	tests := map[string]struct {
		objects  []client.Object
		want     []string
		comeBack bool
	}{
		"a pod too many begins": {
			objects: []client.Object{newSet(1), serving("web-0"), serving("web-1")}, want: []string{beginPatch},
		},
		"an owner that wants all of its pods is looked at again, its cache may be behind": {
			objects: []client.Object{newSet(2), serving("web-0"), serving("web-1")}, comeBack: true,
		},
		"another promise takes the one pod too many": {
			objects: []client.Object{newSet(1), serving("web-0"), waiting("web-1")}, comeBack: true,
		},
		"two pods too many have use for another promise": {
			objects: []client.Object{newSet(0), serving("web-0"), waiting("web-1")}, want: []string{beginPatch},
		},
		"a pod on its way out is none too many": {
			objects: []client.Object{newSet(1), serving("web-0"), owned("web-1").Finalizer("x").Terminating(start).Obj()}, comeBack: true,
		},
		"an owner that is gone wants nothing": {
			objects: []client.Object{serving("web-0"), serving("web-1")}, comeBack: true,
		},
		"what is promised already is not begun again": {
			objects: []client.Object{newSet(0), waiting("web-0")},
		},
		"what may be deleted anyway is not begun": {
			objects: []client.Object{newSet(0), owned("web-0").Phase(corev1.PodSucceeded).Obj()},
		},
		"another pod that has taken the name is left alone": {
			objects: []client.Object{newSet(0), owned("web-0").UID("another").Obj()},
		},
		"a pod that is gone is forgotten": {
			objects: []client.Object{newSet(0)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			b := NewStarter(w.cache, w.clock)
			result := hold(t, b, "web-0")
			if diff := cmp.Diff(tc.want, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if comesBack := result.RequeueAfter > 0; comesBack != tc.comeBack {
				t.Errorf("comes back after %v, want to come back: %v", result.RequeueAfter, tc.comeBack)
			}
			if kept := len(b.intents) > 0; kept != tc.comeBack {
				t.Errorf("still remembered: %v, want %v", kept, tc.comeBack)
			}
		})
	}
}

func TestAnIntentExpires(t *testing.T) {
	w := newWorld(t, newSet(1), serving("web-0"))
	b := NewStarter(w.cache, w.clock)
	hold(t, b, "web-0")
	w.clock.Step(intentLife + time.Second)
	result, err := b.Reconcile(t.Context(), requestFor("web-0"))
	if err != nil || result.RequeueAfter != 0 || len(b.intents) != 0 {
		t.Errorf("after its life: %v, %v, %d intents, want nothing left", result, err, len(b.intents))
	}
}

func TestAskingAgainBeforeTheCacheShowsItSendsNothing(t *testing.T) {
	w := newWorld(t, newSet(0), serving("web-0"))
	b := NewStarter(w.cache, w.clock)
	hold(t, b, "web-0")
	w.sent()
	w.clock.Step(time.Second)
	if result := hold(t, b, "web-0"); result.RequeueAfter == 0 {
		t.Error("does not come back: should the lifecycle have been undone, nobody would begin it")
	}
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v, want nothing", sent)
	}
	w.clock.Step(begunMemory)
	hold(t, b, "web-0")
	if diff := cmp.Diff(1, len(w.sent())); diff != "" {
		t.Errorf("requests once the memory has ended (-want +got):\n%s", diff)
	}
}

func TestErrorsOfBegin(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		answer, want error
	}{
		"a pod that is gone is no error":   {apierrors.NewNotFound(pods, "web-0"), nil},
		"a pod that was replaced is none":  {apierrors.NewConflict(pods, "web-0", broken), nil},
		"anything else is tried once more": {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newSet(0), serving("web-0"))
			w.answer = tc.answer
			b := NewStarter(w.cache, w.clock)
			b.Promise(types.NamespacedName{Namespace: "default", Name: "web-0"}, "web-0-uid")
			_, err := b.Reconcile(t.Context(), requestFor("web-0"))
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if kept := len(b.intents) > 0; kept != (tc.want != nil) {
				t.Errorf("still remembered: %v", kept)
			}
		})
	}
}

// TestPromisesBeforeTheStart: webhooks answer before controllers start.
func TestPromisesBeforeTheStart(t *testing.T) {
	b := NewStarter(nil, newWorld(t).clock)
	for i := range maxIntents + 5 {
		b.Promise(types.NamespacedName{Namespace: "default", Name: fmt.Sprint(i)}, "u")
	}
	if len(b.intents) != maxIntents {
		t.Errorf("%d intents, want no more than %d", len(b.intents), maxIntents)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := b.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if queue.Len() != maxIntents {
		t.Errorf("%d requests in the queue, want all %d", queue.Len(), maxIntents)
	}
	b.Promise(types.NamespacedName{Namespace: "default", Name: "0"}, "u")
	if queue.Len() != maxIntents {
		t.Errorf("%d requests in the queue, want the same %d", queue.Len(), maxIntents)
	}
}
