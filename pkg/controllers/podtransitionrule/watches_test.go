package podtransitionrule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[string] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	t.Cleanup(queue.ShutDown)
	return queue
}

// drain returns the queued namespaces.
func drain(queue workqueue.TypedRateLimitingInterface[string]) map[string]int {
	got := map[string]int{}
	for queue.Len() > 0 {
		item, _ := queue.Get()
		got[item]++
		queue.Done(item)
	}
	return got
}

// TestNotifierKeepsEarlyNotifications shows that a replica that is not the leader has no queue, and
// finds every namespace that changed in it when it is.
func TestNotifierKeepsEarlyNotifications(t *testing.T) {
	n, queue := NewNotifier(clock.RealClock{}), newQueue(t)
	for _, namespace := range []string{"a", "b", "a"} {
		n.Notify(namespace)
	}
	if err := n.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, drain(queue)); diff != "" {
		t.Errorf("queued at the start (-want +got):\n%s", diff)
	}
}

// TestChangesShareARound shows that a namespace is queued at once when it changes after a rest, that changes soon after it share a
// round, and that a change during a round causes another round.
func TestChangesShareARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, queue := NewNotifier(clock.RealClock{}), newQueue(t)
		if err := n.start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		take := func(want string, after time.Duration) {
			t.Helper()
			began := time.Now()
			if item, _ := queue.Get(); item != want || time.Since(began) != after {
				t.Errorf("%s is queued after %s, want %s after %s", item, time.Since(began), want, after)
			}
		}
		n.Notify("a")
		take("a", 0)
		queue.Done("a")
		for range 3 {
			n.Notify("a")
			time.Sleep(sharing / 4)
		}
		n.Notify("b")
		take("b", 0)
		take("a", sharing/4+sharing%4)
		n.Notify("a") // during its round
		queue.Done("a")
		queue.Done("b")
		take("a", sharing)
		queue.Done("a")
		time.Sleep(rest)
		n.Notify("a")
		take("a", 0)
		queue.Done("a")
		if left := drain(queue); len(left) > 0 {
			t.Errorf("%v are queued, want nothing", left)
		}
		queue.ShutDown()
	})
}

// TestWorkloadsAreFed shows that each kind has a desired number and a template.
func TestWorkloadsAreFed(t *testing.T) {
	three, controller := int32(3), true
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}
	below := meta
	below.UID, below.OwnerReferences = "rs-uid", []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web-uid", Controller: &controller}}
	for name, tc := range map[string]struct {
		objects []client.Object
		want    int32
	}{
		"a Deployment":                    {objects: []client.Object{&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three, Template: template}}}, want: 3},
		"a StatefulSet":                   {objects: []client.Object{&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &three, Template: template}}}, want: 3},
		"a ReplicaSet":                    {objects: []client.Object{&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three, Template: template}}}, want: 3},
		"one that does not say how many":  {objects: []client.Object{&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}}, want: 1},
		"a ReplicaSet below a Deployment": {objects: []client.Object{&appsv1.ReplicaSet{ObjectMeta: below, Spec: appsv1.ReplicaSetSpec{Replicas: &three, Template: template}}, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}}, want: 1},
		"a kind without a desired number": {objects: []client.Object{&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}}}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", labelled("approved", "approved"))
			handler := feed(s.reconciler.setOwner, s.reconciler.deleteOwner)
			for _, object := range tc.objects {
				handler.Create(t.Context(), event.CreateEvent{Object: object}, nil)
			}
			s.round()
			if got := s.object("web").Status.Desired; got != tc.want {
				t.Errorf("%d desired, want %d", got, tc.want)
			}
			for _, object := range tc.objects {
				handler.Delete(t.Context(), event.DeleteEvent{Object: object}, nil)
			}
			if got := s.index.Snapshot("default", nil).Rules[0].Counts.Desired; got != 0 {
				t.Errorf("%d desired of workloads that are gone", got)
			}
		})
	}
}

// TestRulesAreFed creates, edits and deletes a rule.
func TestRulesAreFed(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	object := s.object("web")
	handler := feed(s.reconciler.setRule, s.reconciler.deleteRule)
	handler.Delete(t.Context(), event.DeleteEvent{Object: object}, nil)
	if s.object("web") != nil {
		t.Error("a deleted rule is in force")
	}
	handler.Create(t.Context(), event.CreateEvent{Object: object}, nil)
	edited := object.DeepCopy()
	edited.ResourceVersion, edited.Generation = s.next(), object.Generation+1
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: object, ObjectNew: edited}, nil)
	if got := s.object("web"); got == nil || got.Generation != edited.Generation {
		t.Errorf("got %+v, want the edited rule", got)
	}
	handler.Create(context.Background(), event.CreateEvent{Object: &corev1.Pod{}}, nil)
}
