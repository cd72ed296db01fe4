package deferreddelete

import (
	"context"
	"errors"
	"strconv"
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
	"github.com/podops-dev/podops/pkg/deferreddelete"
)

const (
	deleteRequest = "delete web-0 uid=web-0-uid resourceVersion=101"
	undoRequest   = `patch web-0 {"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":null},"labels":{"undo-operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`
)

// newFinisher returns a Finisher; current is the ReplicaSet in the API server, nil if it is deleted.
func newFinisher(w *cluster, live *appsv1.ReplicaSet) *Finisher {
	server := fake.NewClientBuilder()
	if live != nil {
		server = server.WithObjects(live)
	}
	return NewFinisher(w.cache, server.Build(), w.recorder, w.metrics, w.clock)
}

func finish(t *testing.T, k *Finisher) reconcile.Result {
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
		"a pod that may be deleted, and was not by its owner, is deleted": {
			objects: []client.Object{newSet(0), granted("web-0")}, live: newSet(0), want: []string{deleteRequest},
		},
		"a pod of a kept scale-down is left to its owner": {
			objects: []client.Object{keptSet(1, 0), granted("web-0")}, live: keptSet(1, 0),
		},
		"a pod that waits for its rules is not deleted": {
			objects: []client.Object{newSet(0), waiting("web-0")}, live: newSet(0),
		},
		"a pod whose traffic goes off is not deleted": {
			objects: []client.Object{newSet(0), recorded(prepared("web-0").Obj(), byOwner)}, live: newSet(0),
		},
		"a pod that the owner needs is not deleted": {
			objects: []client.Object{newSet(1), granted("web-0")}, live: newSet(1),
		},
		"an owner that was edited meanwhile deletes nothing until the cache shows the edit": {
			objects: []client.Object{newSet(0), granted("web-0")}, live: edited,
		},
		"another owner of the same name deletes nothing": {
			objects: []client.Object{newSet(0), granted("web-0")}, live: recreated,
		},
		"a pod that another controller prepares is not deleted": {
			objects: []client.Object{newSet(0), prepared("web-0").Obj()}, live: newSet(0),
		},
		"a deleted owner deletes nothing": {
			objects: []client.Object{newSet(0), granted("web-0")}, live: nil,
		},
		"the garbage collector deletes the pods of a terminating owner": {
			objects: []client.Object{ending, granted("web-0")}, live: ending,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, tc.objects...)
			k := newFinisher(w, tc.live)
			if finish(t, k); len(w.sent()) > 0 {
				t.Fatal("the owner has no time to delete the pod itself")
			}
			w.clock.Step(finishAfter)
			finish(t, k)
			if diff := cmp.Diff(tc.want, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if events := len(w.events()); events != len(tc.want) {
				t.Errorf("%d events, want one a delete", events)
			}
		})
	}
}

func TestADeleteIsSentOnce(t *testing.T) {
	w := newCluster(t, newSet(0), granted("web-0"))
	k := newFinisher(w, newSet(0))
	finish(t, k)
	w.clock.Step(finishAfter)
	finish(t, k)
	w.sent()
	finish(t, k)
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first one", sent)
	}
}

func TestErrorsOfFinisher(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := errors.New("broken")
	for name, tc := range map[string]struct{ err, want error }{
		"a deleted pod is a success": {apierrors.NewNotFound(pods, "web-0"), nil},
		"any other error is retried": {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, newSet(0), granted("web-0"))
			k := newFinisher(w, newSet(0))
			finish(t, k)
			w.clock.Step(finishAfter)
			w.err = tc.err
			if _, err := k.Reconcile(t.Context(), requestFor("web")); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if events := w.events(); len(events) > 0 {
				t.Errorf("events %v, and no pod was deleted", events)
			}
			w.err = nil
			w.sent()
			finish(t, k)
			if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
				t.Errorf("next time (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConflictWaitsForTheWatch shows that a pod with a conflict is retried when the watch delivers
// it, and otherwise after retryStale.
func TestConflictWaitsForTheWatch(t *testing.T) {
	w := newCluster(t, newSet(0), granted("web-0"))
	k := newFinisher(w, newSet(0))
	finish(t, k)
	w.clock.Step(finishAfter)
	w.err = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("the object has been modified"))
	for range 3 { // such as events of other pods of the ReplicaSet
		if result := finish(t, k); result.RequeueAfter != retryStale {
			t.Errorf("requeued after %v, want %v", result.RequeueAfter, retryStale)
		}
	}
	if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if events := w.events(); len(events) > 0 {
		t.Errorf("events %v, and no pod was deleted", events)
	}
	w.err = nil
	w.clock.Step(retryStale)
	finish(t, k)
	if diff := cmp.Diff([]string{deleteRequest}, w.sent()); diff != "" {
		t.Errorf("requests after the delay (-want +got):\n%s", diff)
	}
}

func TestUndo(t *testing.T) {
	w := newCluster(t, newSet(1), waiting("web-0"))
	k := newFinisher(w, newSet(1))
	if result := finish(t, k); result.RequeueAfter != cancelAfter {
		t.Errorf("requeued after %v, want %v", result.RequeueAfter, cancelAfter)
	}
	w.clock.Step(cancelAfter - time.Second)
	if result := finish(t, k); result.RequeueAfter != time.Second || len(w.sent()) > 0 {
		t.Errorf("requeued after %v, want another second and no request", result.RequeueAfter)
	}
	w.clock.Step(time.Second)
	finish(t, k)
	if diff := cmp.Diff([]string{undoRequest}, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{EventDeleteUndone}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := w.cancelled(t)["reason=Unwanted"]; got != 1 {
		t.Errorf("%v cancelled deletes are counted, want 1", got)
	}
	w.clock.Step(time.Second)
	finish(t, k)
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first one", sent)
	}
}

// TestOthersAreNotUndone shows that only deletes for the ReplicaSet depend on its surplus.
func TestOthersAreNotUndone(t *testing.T) {
	foreign := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start)
	for name, pod := range map[string]*corev1.Pod{
		"another controller began by labels": foreign.Obj(),
		"a client wants the pod gone":        recorded(foreign.Obj(), deferreddelete.Request{Actor: deferreddelete.ActorClient}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, newSet(1), pod)
			k := newFinisher(w, newSet(1))
			finish(t, k)
			w.clock.Step(2 * cancelAfter)
			if result := finish(t, k); result.RequeueAfter != 0 || len(w.sent()) > 0 {
				t.Errorf("requeued after %v or sent a request, want neither", result.RequeueAfter)
			}
		})
	}
}

func TestADeleteThatTheOwnerNeedsAgainRestartsTheDelay(t *testing.T) {
	w := newCluster(t, newSet(1), waiting("web-0"))
	k := newFinisher(w, newSet(1))
	finish(t, k)
	w.clock.Step(cancelAfter / 2)
	w.scale(t, 0)
	finish(t, k)
	w.scale(t, 1)
	w.clock.Step(cancelAfter / 2)
	if result := finish(t, k); result.RequeueAfter != cancelAfter || len(w.sent()) > 0 {
		t.Errorf("requeued after %v, want the whole delay again", result.RequeueAfter)
	}
}

func TestUndoRestoresTheDeletionCostOfAScaleDown(t *testing.T) {
	pod := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start).Obj()
	pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: "7", corev1.PodDeletionCost: "-2147483648"}
	w := newCluster(t, newSet(1), pod)
	k := newFinisher(w, newSet(1))
	finish(t, k)
	w.clock.Step(cancelAfter)
	finish(t, k)
	want := []string{`patch web-0 {"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"7",` +
		`"podopslifecycle.kusionstack.io/previous-deletion-cost":null},"labels":{"undo-operation-type/pod-delete":"delete"},"uid":"web-0-uid"}}`}
	if diff := cmp.Diff(want, w.sent()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// keptSet returns a ReplicaSet whose scale-down admission keeps.
func keptSet(replicas int32, desired int) *appsv1.ReplicaSet {
	set := newSet(replicas)
	set.Annotations = map[string]string{appsv1alpha1.DesiredReplicasAnnotationKey: strconv.Itoa(desired)}
	return set
}

func (w *cluster) scale(t *testing.T, replicas int32) {
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

// TestAnotherLifecycleRestartsTheDelay shows that a wait ends with its lifecycle: another controller may
// have cancelled the first delete.
func TestAnotherLifecycleRestartsTheDelay(t *testing.T) {
	w := newCluster(t, newSet(1), waiting("web-0"))
	k := newFinisher(w, newSet(1))
	finish(t, k)
	w.clock.Step(cancelAfter - time.Second)
	again := waiting("web-0")
	again.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = strconv.FormatInt(w.clock.Now().UnixNano(), 10)
	if err := w.cache.Update(t.Context(), recorded(again, byOwner)); err != nil {
		t.Fatal(err)
	}
	if result := finish(t, k); result.RequeueAfter != cancelAfter || len(w.sent()) > 0 {
		t.Errorf("requeued after %v, want the whole delay again", result.RequeueAfter)
	}
}
