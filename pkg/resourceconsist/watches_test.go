package resourceconsist

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podops-dev/podops/test/builders"
)

func (w *world) update(before, after client.Object) []string {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	w.r.employeeEvents().Update(w.t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	var names []string
	for queue.Len() > 0 {
		request, _ := queue.Get()
		names = append(names, request.Name)
		queue.Done(request)
	}
	slices.Sort(names)
	return names
}

func TestWhichEmployersAPodWakes(t *testing.T) {
	other := web()
	other.Name, other.Spec.Selector = "other", map[string]string{"app": "other"}
	foreign := web()
	foreign.Name, foreign.Labels = "foreign", nil
	w := newWorld(t, nil, web(), other, foreign)
	for sentence, tc := range map[string]struct {
		before, after *builders.PodBuilder
		want          []string
	}{
		"the one that selects it":                        {webPod("a"), webPod("a").Ready(), []string{"web"}},
		"the one that it moves to and the one it leaves": {webPod("a"), webPod("a").Label("app", "other"), []string{"other", "web"}},
		"none":                                 {builders.MakePod("a"), builders.MakePod("a"), nil},
		"one that it names, though it is gone": {builders.MakePod("a"), builders.MakePod("a").Expect("Service/default/gone", "x"), []string{"gone"}},
		"none that is another controller's":    {builders.MakePod("a"), builders.MakePod("a").Expect("Service/default/foreign", "x"), nil},
		"none of another kind or namespace":    {builders.MakePod("a"), builders.MakePod("a").Expect("Gateway/default/web", "x").Expect("Service/else/web", "x"), nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, w.update(tc.before.Obj(), tc.after.Obj())); diff != "" {
				t.Errorf("employers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmployersOfAnotherKindAreWokenByWhomTheySelect(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pool"}}
	second := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}}
	w := newWorld(t, func(l *lb) ReconcileAdapter { return watching{l, &corev1.ConfigMap{}, &corev1.Pod{}} }, config, second)
	w.r.selections.set(client.ObjectKeyFromObject(config), map[string]bool{"a": true})
	if got := w.update(webPod("a").Obj(), webPod("a").Ready().Obj()); !slices.Equal(got, []string{"pool"}) {
		t.Errorf("a pod that is selected wakes %v", got)
	}
	if got := w.update(webPod("b").Obj(), webPod("b").Label("new", "label").Obj()); !slices.Equal(got, []string{"pool", "second"}) {
		t.Errorf("a pod with new labels wakes %v: only the adapters know", got)
	}
}

func TestEventsOfAnEmployerThatWasOurs(t *testing.T) {
	w := newWorld(t, nil)
	events := w.r.employerEvents()
	released := web()
	released.Labels = nil
	marked := released.DeepCopy()
	marked.Annotations = map[string]string{ControllerAnnotationKey: "lb"}
	if !events.Update(event.UpdateEvent{ObjectOld: web(), ObjectNew: released}) {
		t.Error("an employer that loses its label is cleaned up")
	}
	if !events.Create(event.CreateEvent{Object: marked}) {
		t.Error("an employer that lost its label while the manager was away is cleaned up")
	}
	if events.Create(event.CreateEvent{Object: released}) || events.Update(event.UpdateEvent{ObjectOld: released, ObjectNew: released}) {
		t.Error("an employer that never was ours is not looked at")
	}
}
