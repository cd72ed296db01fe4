package deferreddelete

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/test/builders"
)

var (
	byClient  = deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorClient, User: "jane"}
	byEvictor = deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor, User: "jane"}
	byLabel   = deferreddelete.Request{Method: deferreddelete.MethodLabel, Actor: deferreddelete.ActorLabel}
)

// newPendingDeletes returns a PendingDeletes; live are the workloads in the API server.
func newPendingDeletes(w *cluster, live ...client.Object) *PendingDeletes {
	return NewPendingDeletes(PendingConfig{
		Client: w.cache, APIReader: fake.NewClientBuilder().WithObjects(live...).Build(), Recorder: w.recorder, Metrics: w.metrics,
		Facts: podfacts.New(w.cache, w.cache, nil, w.clock), Repeats: w.repeats, Clock: w.clock,
	})
}

func reconciled(t *testing.T, p *PendingDeletes) reconcile.Result {
	t.Helper()
	result, err := p.Reconcile(t.Context(), requestFor("web-0"))
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

// stateful returns a StatefulSet whose pods of another revision than this one are replaced.
func stateful(revision string, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Generation: 1}}
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, UpdateRevision: revision}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

var (
	statefulOwner = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web-uid"}
	customOwner   = metav1.OwnerReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", UID: "web-uid", Controller: new(true)}
	jobOwner      = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "web", UID: "web-uid"}
	daemonOwner   = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: "web-uid"}
)

// inPlace returns a DaemonSet whose pods are all where they are to be; resumed returns a Job that has as many pods as it is to have.
func inPlace() *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Generation: 1}}
	set.Status = appsv1.DaemonSetStatus{ObservedGeneration: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1}
	return set
}

func resumed() *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}}
	job.Spec.Suspend, job.Status.Active = new(bool), 1
	return job
}

func bare() *builders.PodBuilder { return builders.MakePod("web-0").Phase(corev1.PodRunning) }

func off(pod *builders.PodBuilder) *corev1.Pod {
	return pod.Preparing(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).UnreadyByGate(builders.Epoch).Obj()
}

func on(pod *builders.PodBuilder) *corev1.Pod {
	return pod.Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start).Obj()
}

// withheld adds the verdict of a rule to a pod.
func withheld(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = `{"stage":"PreCheck","rejectInfo":[{"ruleName":"approved","reason":"LabelMismatch: no"}]}`
	return pod
}

func TestPendingDeletes(t *testing.T) {
	const (
		remove = "delete web-0 uid=web-0-uid resourceVersion=100"
	)
	old := func(pod *builders.PodBuilder) *builders.PodBuilder {
		return pod.OwnedBy(statefulOwner).Label("controller-revision-hash", "old")
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		cached []client.Object
		live   []client.Object
		want   []string
		again  time.Duration
	}{
		"a client's delete is left to its client":                   {pod: recorded(off(bare()), byClient), again: deferreddelete.MinLapse + deferreddelete.MaxWait},
		"an eviction is, too":                                       {pod: recorded(off(bare()), byEvictor), again: deferreddelete.MinLapse + deferreddelete.MaxWait},
		"a withheld pod waits for a repeat, from the first look on": {pod: withheld(recorded(on(bare()), byEvictor)), again: deferreddelete.MinLapse},
		"a pod without a record is left":                            {pod: off(bare())},
		"one of a ReplicaSet is left":                               {pod: recorded(prepared("web-0").Obj(), byOwner), cached: []client.Object{newSet(0)}},
		"a terminating pod is left":                                 {pod: recorded(off(bare().Finalizer("x").Terminating(start)), byClient)},
		"a StatefulSet's delete is carried out": {
			pod: recorded(off(old(bare())), byOwner), cached: []client.Object{stateful("new")}, live: []client.Object{stateful("new")}, want: []string{remove},
		},
		"it is not when the set was rolled back meanwhile": {
			pod: recorded(off(old(bare())), byOwner), cached: []client.Object{stateful("new")}, live: []client.Object{stateful("old")}, again: retryStale,
		},
		"it is not when the set is deleted meanwhile": {
			pod: recorded(off(old(bare())), byOwner), cached: []client.Object{stateful("new")}, again: retryStale,
		},
		"it waits a while when the set is rolled back": {
			pod: recorded(off(old(bare())), byOwner), cached: []client.Object{stateful("old")}, again: deferreddelete.UnwantedLapse,
		},
		"a DaemonSet's is left to its controller": {
			pod:    recorded(off(bare().OwnedBy(daemonOwner)), byOwner),
			cached: []client.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}}}, again: deferreddelete.MaxLapse,
		},
		"the label is carried out": {pod: recorded(off(bare().Label(appsv1alpha1.ToDeleteLabelKey, "true")), byLabel), want: []string{remove}},
		"a finished pod with the label is deleted at once": {
			pod: bare().Phase(corev1.PodSucceeded).Label(appsv1alpha1.ToDeleteLabelKey, "true").Obj(), want: []string{remove},
		},
		"the label begins a delete": {
			pod: bare().Available().Label(appsv1alpha1.ToDeleteLabelKey, "true").Obj(),
			want: []string{`patch web-0 {"metadata":{"annotations":{"podopslifecycle.kusionstack.io/pending-delete":` +
				`"{\"uid\":\"web-0-uid\",\"since\":\"1767225610000000000\",\"method\":\"Label\",\"actor\":\"Label\"}"},` +
				`"labels":{"operating/pod-delete":"1767225610000000000","operation-type/pod-delete":"delete"},"resourceVersion":"100","uid":"web-0-uid"}}`},
		},
		"taking it off undoes it": {pod: recorded(on(bare()), byLabel), want: []string{undoRequest}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, append([]client.Object{tc.pod}, tc.cached...)...)
			result := reconciled(t, newPendingDeletes(w, tc.live...))
			if diff := cmp.Diff(tc.want, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if result.RequeueAfter != tc.again {
				t.Errorf("again after %s, want %s", result.RequeueAfter, tc.again)
			}
		})
	}
}

func TestAPendingDeleteLapses(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		cached []client.Object
		after  time.Duration
		reason deferreddelete.Lapse
	}{
		"a client's, when it is not repeated":        {reason: deferreddelete.LapseRepeated, pod: withheld(recorded(on(bare()), byClient)), after: deferreddelete.MinLapse},
		"an eviction, when it is not repeated":       {reason: deferreddelete.LapseRepeated, pod: recorded(on(bare()), byEvictor), after: deferreddelete.MaxLapse},
		"a StatefulSet's, when it is rolled back":    {reason: deferreddelete.LapseUnwanted, pod: recorded(on(bare().OwnedBy(statefulOwner).Label("controller-revision-hash", "old")), byOwner), cached: []client.Object{stateful("old")}, after: deferreddelete.UnwantedLapse},
		"an owner's, when the pod was orphaned":      {reason: deferreddelete.LapseUnwanted, pod: recorded(on(bare()), byOwner), after: deferreddelete.UnwantedLapse},
		"a DaemonSet's, when its nodes are selected": {reason: deferreddelete.LapseUnwanted, pod: recorded(on(bare().OwnedBy(daemonOwner)), byOwner), cached: []client.Object{inPlace()}, after: deferreddelete.UnwantedLapse},
		"a Job's, when it is resumed":                {reason: deferreddelete.LapseUnwanted, pod: recorded(on(bare().OwnedBy(jobOwner)), byOwner), cached: []client.Object{resumed()}, after: deferreddelete.UnwantedLapse},
		"an owner's, when the owner does not exist":  {reason: deferreddelete.LapseUnwanted, pod: recorded(on(bare().OwnedBy(daemonOwner)), byOwner), after: deferreddelete.UnwantedLapse},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, append([]client.Object{tc.pod}, tc.cached...)...)
			p := newPendingDeletes(w)
			if reconciled(t, p).RequeueAfter == 0 || len(w.sent()) > 0 {
				t.Fatal("it lapses at once, or never")
			}
			w.clock.Step(tc.after)
			reconciled(t, p)
			if diff := cmp.Diff([]string{undoRequest}, w.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{EventDeleteUndone}, w.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := w.cancelled(t)["reason="+string(tc.reason)]; got != 1 {
				t.Errorf("%v cancelled deletes are counted as %s, want 1", got, tc.reason)
			}
			reconciled(t, p)
			if sent := w.sent(); len(sent) > 0 {
				t.Errorf("sent %v again, before the cache shows the first one", sent)
			}
		})
	}
}

// TestRepetitionsOfAPreparedPod shows that a leader remembers them, and that a replica that does not lead writes them. The
// request lapses once it is not repeated, and a leader that begins waits for a repetition.
func TestRepetitionsOfAPreparedPod(t *testing.T) {
	evicted := func() *corev1.Pod {
		pod := recorded(off(bare()), byEvictor)
		record, _ := deferreddelete.Pending(pod)
		record.Seen, record.Interval = start.UnixNano(), (10 * time.Second).Nanoseconds()
		pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(record)
		return pod
	}
	const lapse = 30*time.Second + deferreddelete.MaxWait
	w := newCluster(t, evicted())
	leader, other, p := newStarter(w), follower(newStarter(w)), newPendingDeletes(w)
	if got := reconciled(t, p).RequeueAfter; got != lapse {
		t.Fatalf("the request lapses after %s, want %s", got, lapse)
	}
	repeat := func(s *Starter) []string {
		t.Helper()
		s.Defer(types.NamespacedName{Namespace: "default", Name: "web-0"}, evicted().UID, byEvictor)
		if _, err := s.Reconcile(t.Context(), requestFor("web-0")); err != nil {
			t.Fatal(err)
		}
		return w.sent()
	}
	for range 10 {
		w.clock.Step(10 * time.Second)
		if sent := repeat(leader); len(sent) > 0 {
			t.Fatalf("a leader writes %v for a repetition, want nothing", sent)
		}
		if got := reconciled(t, p).RequeueAfter; got != lapse {
			t.Errorf("the request lapses %s after a repetition, want %s", got, lapse)
		}
	}
	if sent := repeat(other); len(sent) != 1 {
		t.Errorf("a replica that does not lead sends %v, want the record", sent)
	}
	w.repeats = observation.NewTracker(w.clock)
	if got := reconciled(t, newPendingDeletes(w)).RequeueAfter; got != lapse {
		t.Errorf("the request lapses %s after a change of the leader, want %s", got, lapse)
	}
	w.clock.Step(lapse)
	reconciled(t, p)
	if diff := cmp.Diff([]string{undoRequest}, w.sent()); diff != "" {
		t.Errorf("requests once it is not repeated (-want +got):\n%s", diff)
	}
}

// TestChangesOfOwners has the changes of workloads after which their pending deletes are decided again.
func TestChangesOfOwners(t *testing.T) {
	suspended, misscheduled, old := resumed(), inPlace(), inPlace()
	suspended.Spec.Suspend, suspended.Generation = new(true), 1
	misscheduled.Status.NumberMisscheduled = 1
	old.Status.UpdatedNumberScheduled = 0
	counted := inPlace()
	counted.Status.NumberAvailable = 1
	for name, tc := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a Job is resumed":                    {suspended, resumed(), true},
		"a node is not selected":              {inPlace(), misscheduled, true},
		"all nodes are selected again":        {misscheduled, inPlace(), true},
		"all pods are updated":                {old, inPlace(), true},
		"a pod of a DaemonSet is available":   {inPlace(), counted, false},
		"a StatefulSet has another revision":  {stateful("old"), stateful("new"), true},
		"a StatefulSet is the same as before": {stateful("new"), stateful("new"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := edited().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("decided again: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestErrorsOfPendingDeletes(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		err, want error
		again     time.Duration
	}{
		"a deleted pod is a success":  {err: apierrors.NewNotFound(pods, "web-0")},
		"a changed pod is read again": {err: apierrors.NewConflict(pods, "web-0", broken), again: retryStale},
		"any other error is retried":  {err: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, recorded(off(bare().Label(appsv1alpha1.ToDeleteLabelKey, "true")), byLabel))
			w.err = tc.err
			result, err := newPendingDeletes(w).Reconcile(t.Context(), requestFor("web-0"))
			if !errors.Is(err, tc.want) || result.RequeueAfter != tc.again {
				t.Errorf("got %v, %v, want %v and again after %s", result, err, tc.want, tc.again)
			}
			if events := w.events(); len(events) > 0 {
				t.Errorf("events %v, and no pod was removed", events)
			}
		})
	}
}

func TestAPodIsRemovedOnce(t *testing.T) {
	w := newCluster(t, recorded(off(bare().Label(appsv1alpha1.ToDeleteLabelKey, "true")), byLabel))
	p := newPendingDeletes(w)
	reconciled(t, p)
	if diff := cmp.Diff([]string{EventDeleteFinished}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.sent()
	reconciled(t, p)
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %v again, before the cache shows the first one", sent)
	}
}

func TestAnEditOfTheOwnerWakesItsPods(t *testing.T) {
	pod := recorded(on(bare().OwnedBy(statefulOwner)), byOwner)
	w := newCluster(t, pod, builders.MakePod("web-1").OwnedBy(statefulOwner).Obj())
	got := newPendingDeletes(w).pendingFor(t.Context(), stateful("new"))
	if diff := cmp.Diff([]reconcile.Request{requestFor("web-0")}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		after *appsv1.StatefulSet
		want  bool
	}{
		"an edit":            {stateful("old", func(s *appsv1.StatefulSet) { s.Generation = 2 }), true},
		"a new revision":     {stateful("new"), true},
		"its deletion":       {stateful("old", func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{Time: start} }), true},
		"an available pod":   {stateful("old", func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 2 }), true},
		"counts in a status": {stateful("old", func(s *appsv1.StatefulSet) { s.Status.ReadyReplicas = 2 }), false},
	} {
		if got := edited().Update(event.UpdateEvent{ObjectOld: stateful("old"), ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s wakes the pods: %t, want %t", name, got, tc.want)
		}
	}
}
