package deferreddelete

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/test/builders"
)

const beginPatch = `patch web-0 {"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":` +
	`"{\"uid\":\"web-0-uid\",\"since\":\"1767225610000000000\",\"method\":\"Delete\",\"actor\":\"Owner\"}"},` +
	`"labels":{"operating/pod-delete":"1767225610000000000","operation-type/pod-delete":"delete"},"resourceVersion":"101","uid":"web-0-uid"}}`

// byOwner is a delete by the controller of the ReplicaSet.
var byOwner = deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner}

// mixed makes some pods of a ReplicaSet pods that are not controlled: its status counts all of them.
func mixed(set *appsv1.ReplicaSet, pods int32) *appsv1.ReplicaSet {
	set.Status.Replicas = pods
	return set
}

func deferAndReconcile(t *testing.T, b *Starter, name string) reconcile.Result {
	t.Helper()
	b.Defer(types.NamespacedName{Namespace: "default", Name: name}, types.UID(name+"-uid"), byOwner)
	result, err := b.Reconcile(t.Context(), requestFor(name))
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

func TestBegin(t *testing.T) {
	tests := map[string]struct {
		objects []client.Object
		want    []string
		requeue bool
	}{
		"a pod of an owner whose pods are all controlled is left to package replicasetscale": {
			objects: []client.Object{newSet(1), serving("web-0"), serving("web-1")},
		},
		"a surplus pod of an owner with other pods begins": {
			objects: []client.Object{mixed(newSet(2), 3), serving("web-0"), serving("web-1")}, want: []string{beginPatch},
		},
		"an owner without a surplus is read again, because its cache may be behind": {
			objects: []client.Object{mixed(newSet(3), 3), serving("web-0"), serving("web-1")}, requeue: true,
		},
		"another delete uses up the surplus": {
			objects: []client.Object{mixed(newSet(2), 3), serving("web-0"), waiting("web-1")}, requeue: true,
		},
		"a surplus of two allows another delete": {
			objects: []client.Object{mixed(newSet(1), 3), serving("web-0"), waiting("web-1")}, want: []string{beginPatch},
		},
		"a terminating pod is no surplus": {
			objects: []client.Object{mixed(newSet(3), 3), serving("web-0"), owned("web-1").Finalizer("x").Terminating(start).Obj()}, requeue: true,
		},
		"a deleted owner has no surplus": {
			objects: []client.Object{serving("web-0"), serving("web-1")},
		},
		"a delete in progress is not started again": {
			objects: []client.Object{newSet(0), waiting("web-0")},
		},
		"a pod that may be deleted at once is not started": {
			objects: []client.Object{newSet(0), owned("web-0").Phase(corev1.PodSucceeded).Obj()},
		},
		"another pod of the same name is not changed": {
			objects: []client.Object{newSet(0), owned("web-0").UID("another").Obj()},
		},
		"a deleted pod is dropped": {
			objects: []client.Object{newSet(0)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, tc.objects...)
			b := newStarter(w)
			result := deferAndReconcile(t, b, "web-0")
			if diff := cmp.Diff(tc.want, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if requeued := result.RequeueAfter > 0; requeued != tc.requeue {
				t.Errorf("requeued after %v, want a requeue: %v", result.RequeueAfter, tc.requeue)
			}
			if kept := b.deferred.Len() > 0; kept != tc.requeue {
				t.Errorf("still recorded: %v, want %v", kept, tc.requeue)
			}
		})
	}
}

func TestADeferredDeleteExpires(t *testing.T) {
	w := newCluster(t, newSet(1), serving("web-0"))
	b := newStarter(w)
	deferAndReconcile(t, b, "web-0")
	w.clock.Step(deferredTTL + time.Second)
	result, err := b.Reconcile(t.Context(), requestFor("web-0"))
	if err != nil || result.RequeueAfter != 0 || b.deferred.Len() != 0 {
		t.Errorf("after its TTL: %v, %v, %d deletes, want none", result, err, b.deferred.Len())
	}
}

func TestARepeatedDeleteSendsNothingBeforeTheCacheShowsTheFirst(t *testing.T) {
	w := newCluster(t, mixed(newSet(0), 2), serving("web-0"))
	b := newStarter(w)
	deferAndReconcile(t, b, "web-0")
	w.sent()
	w.clock.Step(time.Second)
	if result := deferAndReconcile(t, b, "web-0"); result.RequeueAfter == 0 {
		t.Error("is not requeued: if the lifecycle was undone, it would not begin again")
	}
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v, want nothing", sent)
	}
	w.clock.Step(startedTTL)
	deferAndReconcile(t, b, "web-0")
	if diff := cmp.Diff(1, len(w.sent())); diff != "" {
		t.Errorf("requests after the TTL (-want +got):\n%s", diff)
	}
}

// TestErrorsOfStarter shows that a pod that has changed is read again: another replica may have begun its lifecycle.
func TestErrorsOfStarter(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		err, want error
	}{
		"a deleted pod is no error":             {apierrors.NewNotFound(pods, "web-0"), nil},
		"a changed or replaced pod is no error": {apierrors.NewConflict(pods, "web-0", broken), nil},
		"any other error is retried":            {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, mixed(newSet(0), 2), serving("web-0"))
			w.err = tc.err
			b := newStarter(w)
			b.Defer(types.NamespacedName{Namespace: "default", Name: "web-0"}, "web-0-uid", byOwner)
			_, err := b.Reconcile(t.Context(), requestFor("web-0"))
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if b.deferred.Len() == 0 {
				t.Error("not recorded any more")
			}
			w.clock.Step(deferredTTL + time.Second)
			_, err = b.Reconcile(t.Context(), requestFor("web-0"))
			if kept := b.deferred.Len() > 0; kept != (tc.want != nil) || !errors.Is(err, tc.want) {
				t.Errorf("after its TTL: still recorded %v, error %v", kept, err)
			}
		})
	}
}

// TestDefersBeforeTheStart matters because webhooks serve before controllers start.
func TestDefersBeforeTheStart(t *testing.T) {
	b := NewStarter(nil, nil, nil, nil, newCluster(t).clock)
	const deletes = 5
	for i := range deletes {
		b.Defer(types.NamespacedName{Namespace: "default", Name: fmt.Sprint(i)}, "u", byOwner)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := b.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if queue.Len() != deletes {
		t.Errorf("%d requests in the queue, want all %d", queue.Len(), deletes)
	}
	b.Defer(types.NamespacedName{Namespace: "default", Name: "0"}, "u", byOwner)
	if queue.Len() != deletes {
		t.Errorf("%d requests in the queue, want the same %d", queue.Len(), deletes)
	}
}

// TestAFloodOfDeletesIsBounded shows that the flood of a namespace displaces only its own deletes.
func TestAFloodOfDeletesIsBounded(t *testing.T) {
	b := NewStarter(nil, nil, nil, nil, newCluster(t).clock)
	other := types.NamespacedName{Namespace: "other", Name: "web-0"}
	b.Defer(other, "u", byOwner)
	last := types.NamespacedName{}
	for i := range deferredBytes / fairshare.EntryBytes {
		last = types.NamespacedName{Namespace: "default", Name: fmt.Sprint(i)}
		b.Defer(last, "u", byOwner)
	}
	if bytes := b.deferred.Bytes(); bytes > deferredBytes {
		t.Errorf("%d bytes of deletes, want %d at most", bytes, deferredBytes)
	}
	for _, pod := range []types.NamespacedName{other, last} {
		if _, ok := b.deferred.Get(pod); !ok {
			t.Errorf("the delete of %s is lost", pod)
		}
	}
}

// TestBeginForOthers shows that a client which wants this very pod gone needs no surplus.
func TestBeginForOthers(t *testing.T) {
	byClient := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorClient, User: "jane"}
	byEvictor := deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor}
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		requests []deferreddelete.Request
		want     deferreddelete.Actor // of the record that is written; empty: none is
	}{
		"a client":                               {serving("web-0"), []deferreddelete.Request{byClient}, deferreddelete.ActorClient},
		"an evictor":                             {serving("web-0"), []deferreddelete.Request{byEvictor}, deferreddelete.ActorEvictor},
		"a client leaves the delete in progress": {waiting("web-0"), []deferreddelete.Request{byClient}, ""},
		"an evictor leaves it":                   {waiting("web-0"), []deferreddelete.Request{byEvictor}, ""},
		"of two at once, the request that needs no surplus counts": {
			serving("web-0"), []deferreddelete.Request{byClient, byOwner}, deferreddelete.ActorClient,
		},
		"a pod that may be deleted at once": {
			owned("web-0").Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj(), []deferreddelete.Request{byClient}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, newSet(1), tc.pod)
			b := newStarter(w)
			for _, request := range tc.requests {
				b.Defer(types.NamespacedName{Namespace: "default", Name: "web-0"}, "web-0-uid", request)
			}
			result, err := b.Reconcile(t.Context(), requestFor("web-0"))
			if err != nil || result.RequeueAfter != 0 || b.deferred.Len() != 0 {
				t.Fatalf("got %v, %v, %d requests left", result, err, b.deferred.Len())
			}
			sent := w.sent()
			if tc.want == "" {
				if len(sent) != 0 {
					t.Errorf("sent %v", sent)
				}
				return
			}
			if len(sent) != 1 || !strings.Contains(sent[0], fmt.Sprintf(`\"actor\":\"%s\"`, tc.want)) {
				t.Errorf("sent %v, want a record of %s", sent, tc.want)
			}
		})
	}
}

// TestACustomControllerThatNamesOtherPods shows that the pods of a custom owner begin one after the other, also while the
// cache does not show the first, and that a pod that its rules withhold for long leaves its place.
func TestACustomControllerThatNamesOtherPods(t *testing.T) {
	byController := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorController, User: "system:serviceaccount:clones:manager"}
	clone := func(name string) *builders.PodBuilder {
		return builders.MakePod(name).OwnedBy(customOwner).Phase(corev1.PodRunning)
	}
	first := withheld(recorded(on(clone("web-0")), byController))
	for name, tc := range map[string]struct {
		first *corev1.Pod
		named []string
		after time.Duration
		want  []string // the pods that are written to
	}{
		"the cache does not show the first": {first: clone("web-0").Available().Obj(), named: []string{"web-0", "web-1"}, want: []string{"web-0"}},
		"rules withhold the first":          {first: first, named: []string{"web-1"}},
		"rules have withheld it for long":   {first: first, named: []string{"web-1"}, after: deferreddelete.ReplaceAnotherAfter, want: []string{"web-0", "web-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, tc.first.DeepCopy(), clone("web-1").Available().Obj())
			w.clock.Step(tc.after)
			b := newStarter(w)
			for _, pod := range tc.named {
				b.Defer(types.NamespacedName{Namespace: "default", Name: pod}, types.UID(pod+"-uid"), byController)
				if _, err := b.Reconcile(t.Context(), requestFor(pod)); err != nil {
					t.Fatal(err)
				}
			}
			var written []string
			for _, request := range w.sent() {
				written = append(written, strings.Fields(request)[1])
			}
			if diff := cmp.Diff(tc.want, written); diff != "" {
				t.Errorf("pods written to (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPodWhoseRemovalIsDenied shows that a pod goes back into service when PodOps has admitted its removal and
// something else has denied it, and when its client went away.
func TestAPodWhoseRemovalIsDenied(t *testing.T) {
	prepared := func() *corev1.Pod {
		return recorded(owned("web-0").Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj(),
			deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor})
	}
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := prepared()
		change(pod)
		return pod
	}
	const kept, abandoned = deferreddelete.LapseKept, deferreddelete.LapseAbandoned
	waiting := recorded(owned("web-0").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj(),
		deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor})
	later, _ := deferreddelete.Pending(waiting)
	later.Seen = start.Add(time.Second).UnixNano()
	for name, tc := range map[string]struct {
		pod   *corev1.Pod // nil: it is gone
		lapse deferreddelete.Lapse
		after time.Duration
		again time.Duration
		want  bool
	}{
		"its client went away":                     {pod: prepared(), lapse: abandoned, want: true},
		"its client went away while rules hold it": {pod: waiting, lapse: abandoned, want: true},
		"another client has requested it since": {pod: changed(func(pod *corev1.Pod) {
			pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(later)
		}), lapse: abandoned, after: 2 * time.Second},
		"it was admitted, and waits again": {pod: waiting, after: removedAfter},
		"it is still there":                {pod: prepared(), after: removedAfter, want: true},
		"the API server has a moment":      {pod: prepared(), after: time.Second, again: removedAfter - time.Second},
		"it is gone":                       {after: removedAfter},
		"another pod has its name":         {pod: changed(func(pod *corev1.Pod) { pod.UID = "later" }), after: removedAfter},
		"it is removed": {pod: changed(func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: start}, []string{"x"}
		}), after: removedAfter},
		"it is the owner that removes it":  {pod: granted("web-0"), after: removedAfter},
		"its lifecycle was undone already": {pod: serving("web-0"), after: removedAfter},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newSet(1)}
			if tc.pod != nil {
				objects = append(objects, tc.pod)
			}
			w := newCluster(t, objects...)
			b := newStarter(w)
			lapse := tc.lapse
			if lapse == "" {
				lapse = kept
			}
			b.Ended(types.NamespacedName{Namespace: "default", Name: "web-0"}, "web-0-uid", lapse)
			w.clock.Step(tc.after)
			result, err := b.Reconcile(t.Context(), requestFor("web-0"))
			if err != nil || result.RequeueAfter != tc.again {
				t.Fatalf("got %v, %v, want again after %s", result, err, tc.again)
			}
			sent := w.sent()
			if !tc.want {
				if len(sent) > 0 {
					t.Errorf("sent %v", sent)
				}
				return
			}
			if len(sent) != 1 || !strings.Contains(sent[0], `"undo-operation-type/pod-delete":"delete"`) || !strings.Contains(sent[0], `"resourceVersion":`) {
				t.Errorf("sent %v, want the undo of this version", sent)
			}
			if diff := cmp.Diff([]string{EventDeleteUndone}, w.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
