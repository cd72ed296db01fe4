package podoperation

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/test/builders"
)

// fixture is an operation that evicts two pods, and its reconciler.
type fixture struct {
	t          *testing.T
	client     client.WithWatch
	clock      *clocktesting.FakePassiveClock
	reconciler *Reconciler
	recorder   *events.FakeRecorder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	operation := &appsv1alpha1.PodOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "evict", UID: "op", CreationTimestamp: metav1.NewTime(builders.Epoch)},
		Spec: appsv1alpha1.PodOperationSpec{
			Target: appsv1alpha1.PodOperationTarget{Names: []string{"web-0", "web-1"}},
			Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionEvict},
		},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(operation).
		WithIndex(operation, StartedField, IndexStarted).WithIndex(operation, UIDField, IndexUID).
		WithObjects(operation, builders.MakePod("web-0").Obj(), builders.MakePod("web-1").Obj()).Build()
	w := &fixture{t: t, client: c, clock: clocktesting.NewFakePassiveClock(builders.Epoch), recorder: events.NewFakeRecorder(100)}
	w.reconciler = New(c, c, w.recorder, w.clock)
	return w
}

func (w *fixture) reconcile() (reconcile.Result, *appsv1alpha1.PodOperation) {
	w.t.Helper()
	key := client.ObjectKey{Namespace: "default", Name: "evict"}
	result, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
	if err != nil {
		w.t.Fatal(err)
	}
	operation := &appsv1alpha1.PodOperation{}
	if err := w.client.Get(context.Background(), key, operation); err != nil {
		w.t.Fatal(err)
	}
	return result, operation
}

// The number of targets is recorded with the start. If the pace of reports delayed it, pods that were removed
// meanwhile would not count.
func TestTheStartIsReportedBeforeAPodIsWrittenTo(t *testing.T) {
	w := newFixture(t)
	w.clock.SetTime(builders.Epoch.Add(900 * time.Millisecond))
	result, early := w.reconcile()
	if early.Status.StartTime != nil || early.Status.Total != 2 || result.RequeueAfter != 100*time.Millisecond {
		t.Fatalf("before: %+v, %+v", result, early.Status)
	}
	w.clock.SetTime(builders.Epoch.Add(time.Second))
	_, started := w.reconcile()
	if started.Status.StartTime == nil || len(started.Finalizers) != 1 {
		t.Fatalf("after: %+v", started)
	}
	pods := &corev1.PodList{}
	if err := w.client.List(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].Labels[appsv1alpha1.OperationTypeLabelPrefix+"/"+podoperation.ID("op")] != "delete" {
			t.Errorf("%s has not begun: %v", pods.Items[i].Name, pods.Items[i].Labels)
		}
	}
}

func TestProgressIsReportedOnceASecond(t *testing.T) {
	w := newFixture(t)
	w.clock.SetTime(builders.Epoch.Add(time.Second))
	w.reconcile()
	result, same := w.reconcile()
	if same.Status.Preparing != 0 || result.RequeueAfter <= 0 || result.RequeueAfter > statusPace {
		t.Errorf("too early: %+v, %+v", result, same.Status)
	}
	w.clock.SetTime(builders.Epoch.Add(2 * time.Second))
	if _, later := w.reconcile(); later.Status.Preparing != 2 {
		t.Errorf("got %+v", later.Status)
	}
	if len(w.recorder.Events) != 1 {
		t.Errorf("%d events, want the start", len(w.recorder.Events))
	}
}

// As many operations as a namespace likes may be queued, and each tries again. They must not cost the time of its pods and
// of each other.
func TestAQueuedOperationTriesAgainWithoutReadingPods(t *testing.T) {
	w := newFixture(t)
	w.clock.SetTime(builders.Epoch.Add(time.Second))
	for i := range appsv1alpha1.MaxActivePodOperations {
		started := metav1.NewTime(builders.Epoch)
		other := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("other-%d", i), UID: types.UID(fmt.Sprint(i))}}
		other.Status.StartTime = &started
		if err := w.client.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		other.Status.StartTime = &started
		if err := w.client.Status().Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	if _, queued := w.reconcile(); readyReason(queued.Status) != appsv1alpha1.ReasonQueued {
		t.Fatalf("the operation is %+v, want Queued", queued.Status)
	}
	w.reconciler.client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			applied := (&client.ListOptions{}).ApplyOptions(options)
			if _, isPods := list.(*corev1.PodList); isPods || applied.FieldSelector == nil {
				t.Errorf("a %T is read", list)
			}
			return c.List(ctx, list, options...)
		},
	})
	if result, _ := w.reconcile(); result.RequeueAfter != podoperation.QueueDelay {
		t.Errorf("tries again after %s, want %s", result.RequeueAfter, podoperation.QueueDelay)
	}
	before := &appsv1alpha1.PodOperation{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "evict"}, before); err != nil {
		t.Fatal(err)
	}
	before.Spec.Cancel = true
	if err := w.client.Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.reconciler.client = w.client
	if _, cancelled := w.reconcile(); cancelled.Status.CompletionTime == nil {
		t.Errorf("a cancelled operation is %+v", cancelled.Status)
	}
}

// Beginning a lifecycle removes the records of ended operations. A record of an operation that has not ended must stay, or
// the pod would be operated on twice.
func TestOnlyRecordsOfEndedOperationsAreRemoved(t *testing.T) {
	w := newFixture(t)
	ended := metav1.NewTime(builders.Epoch)
	for _, name := range []string{"ended", "queued"} {
		other := &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		if err := w.client.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if name == "ended" {
			other.Status.CompletionTime = &ended
			if err := w.client.Status().Update(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := builders.MakePod("web").Obj()
	pod.Annotations = map[string]string{}
	for _, uid := range []types.UID{"ended", "queued", "deleted"} {
		pod.Annotations[podoperation.RecordKey(uid)] = "{}"
	}
	of := adapter{operation: &appsv1alpha1.PodOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "op"}}, isActive: w.reconciler.isActive(t.Context(), "default")}
	if _, err := of.WhenBegin(pod); err != nil {
		t.Fatal(err)
	}
	if _, kept := pod.Annotations[podoperation.RecordKey("queued")]; !kept || len(pod.Annotations) != 1 {
		t.Errorf("left are %v, want the record of the operation that has not ended", pod.Annotations)
	}
}

// TestACacheThatIsBehindStartsNoMoreOperationsThanMayBeInProgress has more operations than may be in progress, whose start
// the cache does not show.
func TestACacheThatIsBehindStartsNoMoreOperationsThanMayBeInProgress(t *testing.T) {
	w := newFixture(t)
	w.clock.SetTime(builders.Epoch.Add(time.Minute))
	stale := &appsv1alpha1.PodOperationList{}
	for i := range appsv1alpha1.MaxActivePodOperations + 4 {
		operation := &appsv1alpha1.PodOperation{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("restart-", i), UID: types.UID(fmt.Sprint(i)), CreationTimestamp: metav1.NewTime(builders.Epoch),
			},
			Spec: appsv1alpha1.PodOperationSpec{
				Target: appsv1alpha1.PodOperationTarget{Names: []string{"web-0"}}, Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart},
			},
		}
		if err := w.client.Create(t.Context(), operation); err != nil {
			t.Fatal(err)
		}
		stale.Items = append(stale.Items, *operation)
	}
	w.reconciler.client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			operations, ok := list.(*appsv1alpha1.PodOperationList)
			if !ok {
				return c.List(ctx, list, options...)
			}
			fields := (&client.ListOptions{}).ApplyOptions(options).FieldSelector
			for i := range stale.Items {
				if uid, byUID := fields.RequiresExactMatch(UIDField); byUID && uid == string(stale.Items[i].UID) {
					operations.Items = append(operations.Items, stale.Items[i])
				}
			}
			return nil
		},
	})
	reconcileAll := func() {
		t.Helper()
		for i := range stale.Items {
			if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&stale.Items[i])}); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantStarted := func(want int) {
		t.Helper()
		var stored appsv1alpha1.PodOperationList
		if err := w.client.List(t.Context(), &stored); err != nil {
			t.Fatal(err)
		}
		started := 0
		for i := range stored.Items {
			if stored.Items[i].Status.StartTime != nil {
				started++
			}
		}
		if started != want {
			t.Errorf("%d operations are in progress, want %d", started, want)
		}
	}
	reconcileAll()
	wantStarted(appsv1alpha1.MaxActivePodOperations)

	// Two of them end, and the cache shows that.
	stale.Items = stale.Items[2:]
	reconcileAll()
	wantStarted(appsv1alpha1.MaxActivePodOperations + 2)
}

func TestASuspendedOperationDoesNotCountAsInProgress(t *testing.T) {
	w := newFixture(t)
	w.clock.SetTime(builders.Epoch.Add(time.Minute))
	for i := range appsv1alpha1.MaxActivePodOperations {
		suspended := &appsv1alpha1.PodOperation{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("restart-", i), UID: types.UID(fmt.Sprint(i)), CreationTimestamp: metav1.NewTime(builders.Epoch),
			},
			Spec: appsv1alpha1.PodOperationSpec{
				Target: appsv1alpha1.PodOperationTarget{Names: []string{"web-0"}}, Action: appsv1alpha1.PodOperationAction{Type: appsv1alpha1.ActionRestart},
				Suspend: true,
			},
		}
		if err := w.client.Create(t.Context(), suspended); err != nil {
			t.Fatal(err)
		}
		if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(suspended)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, started := w.reconcile(); started.Status.StartTime == nil {
		t.Errorf("%+v", started.Status)
	}
}
