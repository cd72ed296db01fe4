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

func (w *cluster) update(before, after client.Object) []string {
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

func TestAPodEventEnqueuesItsEmployers(t *testing.T) {
	other := web()
	other.Name, other.Spec.Selector = "other", map[string]string{"app": "other"}
	foreign := web()
	foreign.Name, foreign.Labels = "foreign", nil
	w := newCluster(t, nil, web(), other, foreign)
	for sentence, tc := range map[string]struct {
		before, after *builders.PodBuilder
		want          []string
	}{
		"an employer that selects the pod":                  {webPod("a"), webPod("a").Ready(), []string{"web"}},
		"the employers before and after a change of labels": {webPod("a"), webPod("a").Label("app", "other"), []string{"other", "web"}},
		"no employer": {builders.MakePod("a"), builders.MakePod("a"), nil},
		"an employer that the annotation names, though it is deleted": {builders.MakePod("a"), builders.MakePod("a").Expect("Service/default/gone", "x"), []string{"gone"}},
		"not an employer of another controller":                       {builders.MakePod("a"), builders.MakePod("a").Expect("Service/default/foreign", "x"), nil},
		"not an employer of another kind or namespace":                {builders.MakePod("a"), builders.MakePod("a").Expect("Gateway/default/web", "x").Expect("Service/else/web", "x"), nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, w.update(tc.before.Obj(), tc.after.Obj())); diff != "" {
				t.Errorf("employers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodEventEnqueuesEmployersOfAnotherKind(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pool"}}
	second := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}}
	w := newCluster(t, func(l *lb) ReconcileAdapter { return watching{l, &corev1.ConfigMap{}, &corev1.Pod{}} }, config, second)
	w.r.selections.set(client.ObjectKeyFromObject(config), map[string]bool{"a": true})
	if got := w.update(webPod("a").Obj(), webPod("a").Ready().Obj()); !slices.Equal(got, []string{"pool"}) {
		t.Errorf("a selected pod enqueues %v", got)
	}
	if got := w.update(webPod("b").Obj(), webPod("b").Label("new", "label").Obj()); !slices.Equal(got, []string{"pool", "second"}) {
		t.Errorf("a pod with new labels enqueues %v, and only the adapter knows its selectors", got)
	}
}

func TestEventsOfAFormerEmployer(t *testing.T) {
	w := newCluster(t, nil)
	events := w.r.employerEvents()
	released := web()
	released.Labels = nil
	marked := released.DeepCopy()
	marked.Annotations = map[string]string{ControllerAnnotationKey: "lb"}
	if !events.Update(event.UpdateEvent{ObjectOld: web(), ObjectNew: released}) {
		t.Error("an employer that loses its label must be reconciled")
	}
	if !events.Create(event.CreateEvent{Object: marked}) {
		t.Error("an employer that lost its label while the manager was down must be reconciled")
	}
	if events.Create(event.CreateEvent{Object: released}) || events.Update(event.UpdateEvent{ObjectOld: released, ObjectNew: released}) {
		t.Error("an employer that never had the label must be ignored")
	}
}
