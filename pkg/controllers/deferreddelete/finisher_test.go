package deferreddelete

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/podfacts"
)

const (
	deleteRequest = "delete web-0 uid=web-0-uid resourceVersion=101"
	undoRequest   = `patch web-0 {"metadata":{"labels":{"undo-operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`
)

// newKeeper has the ReplicaSet live in the API server; nil when it is gone.
func newKeeper(w *world, live *appsv1.ReplicaSet) *Finisher {
	server := fake.NewClientBuilder()
	if live != nil {
		server = server.WithObjects(live)
	}
	return NewFinisher(w.cache, server.Build(), w.recorder, podfacts.New(w.cache, w.cache, w.clock), lifecycle.Options{}, w.clock)
}

func keep(t *testing.T, k *Finisher) reconcile.Result {
	t.Helper()
	result, err := k.Reconcile(t.Context(), requestFor("web"))
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

func TestFinish(t *testing.T) {
	edited := newSet(1)
	edited.Generation = 2
	recreated := newSet(0)
	recreated.UID = "another"
	ending := newSet(0)
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: start}, []string{"foregroundDeletion"}

	tests := map[string]struct {
		objects []client.Object
		live    *appsv1.ReplicaSet
		want    []string
	}{
		"a pod whose traffic is off is deleted": {
			objects: []client.Object{newSet(0), prepared("web-0").Obj()}, live: newSet(0), want: []string{deleteRequest},
		},
		"a pod that holds operate is deleted": {
			objects: []client.Object{newSet(0), owned("web-0").Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj()},
			live:    newSet(0), want: []string{deleteRequest},
		},
		"a pod that waits for its rules is not": {
			objects: []client.Object{newSet(0), waiting("web-0")}, live: newSet(0),
		},
		"a pod that is protected is not": {
			objects: []client.Object{newSet(0), prepared("web-0").Finalizer("prot.podopslifecycle.kusionstack.io/lb").Obj()}, live: newSet(0),
		},
		"a pod that is Ready still is not": {
			objects: []client.Object{newSet(0), prepared("web-0").Ready().Obj()}, live: newSet(0),
		},
		"a pod that the owner wants is not": {
			objects: []client.Object{newSet(1), prepared("web-0").Obj()}, live: newSet(1),
		},
		"an owner that was edited meanwhile is compared again first": {
			objects: []client.Object{newSet(0), prepared("web-0").Obj()}, live: edited,
		},
		"an owner that is another one of the same name has no say": {
			objects: []client.Object{newSet(0), prepared("web-0").Obj()}, live: recreated,
		},
		"an owner that is gone has no say": {
			objects: []client.Object{newSet(0), prepared("web-0").Obj()}, live: nil,
		},
		"the pods of an owner that is going are left to the garbage collector": {
			objects: []client.Object{ending, prepared("web-0").Obj()}, live: ending,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			keep(t, newKeeper(w, tc.live))
			if diff := cmp.Diff(tc.want, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if told := len(w.events()); told != len(tc.want) {
				t.Errorf("%d events, want one a delete", told)
			}
		})
	}
}

func TestADeleteIsSentOnce(t *testing.T) {
	w := newWorld(t, newSet(0), prepared("web-0").Obj())
	k := newKeeper(w, newSet(0))
	keep(t, k)
	w.sent()
	keep(t, k)
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first", sent)
	}
}

func TestSettleTimeIsWaitedFor(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	w := newWorld(t, newSet(0), prepared("web-0").Label("app", "web").UnreadyByGate(start).Obj(), service)
	k := newKeeper(w, newSet(0))
	k.options.Settle = 2 * time.Second
	if result := keep(t, k); result.RequeueAfter != 2*time.Second {
		t.Errorf("comes back after %v, want the settle time", result.RequeueAfter)
	}
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v before the settle time is over", sent)
	}
	w.clock.Step(2 * time.Second)
	keep(t, k)
	if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestErrorsOfFinish(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := errors.New("broken")
	for name, tc := range map[string]struct{ answer, want error }{
		"a pod that is gone is what was wanted": {apierrors.NewNotFound(pods, "web-0"), nil},
		"anything else is tried once more":      {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newSet(0), prepared("web-0").Obj())
			w.answer = tc.answer
			k := newKeeper(w, newSet(0))
			if _, err := k.Reconcile(t.Context(), requestFor("web")); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if told := w.events(); len(told) > 0 {
				t.Errorf("told of %v, and nothing was deleted", told)
			}
			w.answer = nil
			w.sent()
			keep(t, k)
			if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
				t.Errorf("next time (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPodThatHasMovedOn is decided about again when it is seen as it is, and before that
// only in case the watch brings nothing.
func TestAPodThatHasMovedOn(t *testing.T) {
	w := newWorld(t, newSet(0), prepared("web-0").Obj())
	w.answer = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("moved on"))
	k := newKeeper(w, newSet(0))
	for range 3 { // news of other pods of the ReplicaSet, say
		if result := keep(t, k); result.RequeueAfter != retryMovedOn {
			t.Errorf("comes back after %v, want %v", result.RequeueAfter, retryMovedOn)
		}
	}
	if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if told := w.events(); len(told) > 0 {
		t.Errorf("told of %v, and nothing was deleted", told)
	}
	w.answer = nil
	w.clock.Step(retryMovedOn)
	keep(t, k)
	if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
		t.Errorf("requests when it is time (-want +got):\n%s", diff)
	}
}

func TestUndo(t *testing.T) {
	w := newWorld(t, newSet(1), waiting("web-0"))
	k := newKeeper(w, newSet(1))
	if result := keep(t, k); result.RequeueAfter != unwantedFor {
		t.Errorf("comes back after %v, want %v", result.RequeueAfter, unwantedFor)
	}
	w.clock.Step(unwantedFor - time.Second)
	if result := keep(t, k); result.RequeueAfter != time.Second || len(w.sent()) > 0 {
		t.Errorf("comes back after %v, want to wait another second and send nothing", result.RequeueAfter)
	}
	w.clock.Step(time.Second)
	keep(t, k)
	if diff := cmp.Diff([]string{undoRequest}, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{EventDeleteUndone}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.clock.Step(time.Second)
	keep(t, k)
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first", sent)
	}
}

func TestAPromiseThatIsWantedAgainStartsAnew(t *testing.T) {
	w := newWorld(t, newSet(1), waiting("web-0"))
	k := newKeeper(w, newSet(1))
	keep(t, k)
	w.clock.Step(unwantedFor / 2)
	w.scale(t, 0)
	keep(t, k)
	w.scale(t, 1)
	w.clock.Step(unwantedFor / 2)
	if result := keep(t, k); result.RequeueAfter != unwantedFor || len(w.sent()) > 0 {
		t.Errorf("comes back after %v, want the whole time again", result.RequeueAfter)
	}
}

func (w *world) scale(t *testing.T, replicas int32) {
	t.Helper()
	set := &appsv1.ReplicaSet{}
	if err := w.cache.Get(t.Context(), requestFor("web").NamespacedName, set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Replicas = &replicas
	if err := w.cache.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

func TestOwnerOf(t *testing.T) {
	stateful := ownerReference
	stateful.Kind = "StatefulSet"
	tests := map[string]struct {
		pod  *corev1.Pod
		want []reconcile.Request
	}{
		"a pod of a ReplicaSet": {serving("web-0"), []reconcile.Request{requestFor("web")}},
		"a pod of another kind": {builderOf("web-0", stateful), nil},
		"a bare pod":            {builderOf("web-0"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ownerOf(context.Background(), tc.pod)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func builderOf(name string, owners ...metav1.OwnerReference) *corev1.Pod {
	pod := serving(name)
	pod.OwnerReferences = nil
	for _, owner := range owners {
		owner.Controller = new(true)
		pod.OwnerReferences = append(pod.OwnerReferences, owner)
	}
	return pod
}

func TestMemory(t *testing.T) {
	m := newMemory()
	if m.age("u", start) != 0 {
		t.Error("what never happened has an age")
	}
	m.note("u", start)
	if got := m.age("u", start); got != 1 {
		t.Errorf("age at once is %d, want the least that is not 0", got)
	}
	if got := m.age("u", start.Add(-time.Hour)); got != 1 {
		t.Errorf("age is %d although the clock was set back, want 1", got)
	}
	m.prune(start.Add(time.Minute), time.Minute)
	if got := m.age("u", start.Add(time.Minute)); got != time.Minute {
		t.Errorf("age %v, want a minute", got)
	}
	m.prune(start.Add(time.Minute+1), time.Minute)
	if got := m.age("u", start.Add(time.Minute)); got != 0 {
		t.Errorf("age %v after it was dropped", got)
	}
}
