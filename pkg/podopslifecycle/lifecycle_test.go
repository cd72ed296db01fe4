package podopslifecycle_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

func restarter() adapter { return adapter{id: "restarter", operationType: "restart"} }

func stampOf(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// lifecycleLabels returns the labels with an id or a type, without the domain and sorted.
func lifecycleLabels(pod client.Object) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(pod.GetLabels())) {
		if prefix, name, _ := strings.Cut(key, "/"); strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain) {
			keys = append(keys, strings.TrimSuffix(prefix, "."+appsv1alpha1.LifecycleDomain)+"/"+name)
		}
	}
	return keys
}

func wantLabels(t *testing.T, pod client.Object, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lifecycleLabels(pod)); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func wantUpdated(t *testing.T, updated bool, err error) {
	t.Helper()
	if err != nil || !updated {
		t.Fatalf("got updated %t, error %v", updated, err)
	}
}

func TestALifecycleFromBeginToFinish(t *testing.T) {
	s := newServer(t, controlled("web"))
	pod := s.pod(t, "web")
	if podopslifecycle.IsDuringOps(restarter(), pod) {
		t.Error("an untouched pod is during ops")
	}

	updated, err := podopslifecycle.Begin(s, restarter(), pod)
	wantUpdated(t, updated, err)
	wantLabels(t, pod, "operating/restarter", "operation-type/restarter", "pre-check/restarter")
	if !podopslifecycle.IsDuringOps(restarter(), pod) {
		t.Error("a pod that began is not during ops")
	}
	if _, allowed := podopslifecycle.AllowOps(restarter(), 0, pod); allowed {
		t.Error("allowed before operate")
	}

	updated, err = podopslifecycle.Begin(s, restarter(), pod)
	if err != nil || updated || s.patches != 1 {
		t.Errorf("Begin again: updated %t, error %v, %d requests", updated, err, s.patches)
	}

	s.grant(t, "web", "restarter", "restart", time.Now())
	pod = s.pod(t, "web")
	if _, allowed := podopslifecycle.AllowOps(restarter(), 0, pod); !allowed {
		t.Error("not allowed after operate")
	}

	updated, err = podopslifecycle.Finish(s, restarter(), pod)
	wantUpdated(t, updated, err)
	wantLabels(t, pod, "done-operation-type/restarter", "operated/restarter", "post-check/restarter")
	if podopslifecycle.IsDuringOps(restarter(), pod) {
		t.Error("a finished pod is during ops")
	}
	if s.patches != 2 {
		t.Errorf("a lifecycle took %d requests of the controller, want 2", s.patches)
	}
}

func TestAllowOpsWaitsForItsDelay(t *testing.T) {
	for name, tc := range map[string]struct {
		granted string
		allowed bool
		waits   bool
	}{
		"granted now":         {granted: stampOf(time.Now()), waits: true},
		"granted an hour ago": {granted: stampOf(time.Now().Add(-time.Hour)), allowed: true},
		"granted by a clock that is an hour ahead": {granted: stampOf(time.Now().Add(time.Hour)), waits: true},
		"granted at no time":                       {granted: "soon", waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := controlled("web")
			pod.Labels["operating.podopslifecycle.kusionstack.io/restarter"] = "1"
			pod.Labels["operation-type.podopslifecycle.kusionstack.io/restarter"] = "restart"
			pod.Labels["operate.podopslifecycle.kusionstack.io/restarter"] = tc.granted
			wait, allowed := podopslifecycle.AllowOps(restarter(), 600, pod)
			if allowed != tc.allowed || (wait > 0) != tc.waits || wait > 600*time.Second {
				t.Errorf("allowed %t after %s, want %+v", allowed, wait, tc)
			}
		})
	}
}

func TestUndoThenBeginOnTheReturnedObject(t *testing.T) {
	s := newServer(t, controlled("web"))
	pod := s.pod(t, "web")
	updated, err := podopslifecycle.Begin(s, restarter(), pod)
	wantUpdated(t, updated, err)
	first := pod.Labels["pre-check.podopslifecycle.kusionstack.io/restarter"]

	updated, err = podopslifecycle.Undo(s, restarter(), pod)
	wantUpdated(t, updated, err)
	wantLabels(t, pod)

	s.annotate(t, "web") // The gate, in a cluster.
	updated, err = podopslifecycle.Begin(s, restarter(), pod)
	wantUpdated(t, updated, err)
	wantLabels(t, pod, "operating/restarter", "operation-type/restarter", "pre-check/restarter")
	if pod.Annotations["example.com/at"] == "" {
		t.Error("the object is not the stored one")
	}
	if pod.Labels["pre-check.podopslifecycle.kusionstack.io/restarter"] == first {
		t.Error("the second lifecycle has the attempt of the first")
	}
	if s.patches != 5 {
		t.Errorf("%d requests, want 5: begin, undo, begin with its conflict, the read, and begin", s.patches)
	}
}

func TestAConflictNeverEndsALaterLifecycle(t *testing.T) {
	for name, call := range map[string]func(podopslifecycle.Client, podopslifecycle.LifecycleAdapter, client.Object, ...podopslifecycle.UpdateFunc) (bool, error){
		"Finish": podopslifecycle.Finish, "Undo": podopslifecycle.Undo,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, controlled("web"))
			stale := s.pod(t, "web")
			_, err := podopslifecycle.Begin(s, restarter(), stale)
			if err != nil {
				t.Fatal(err)
			}
			again := stale.DeepCopy()
			updated, err := podopslifecycle.Undo(s, restarter(), again)
			wantUpdated(t, updated, err)
			updated, err = podopslifecycle.Begin(s, restarter(), again)
			wantUpdated(t, updated, err)

			before := stale.DeepCopy()
			if _, err = call(s, restarter(), stale); !errors.Is(err, podopslifecycle.ErrStale) {
				t.Errorf("got %v, want ErrStale", err)
			}
			if diff := cmp.Diff(before, stale); diff != "" {
				t.Errorf("a call with an error changed the object:\n%s", diff)
			}
			wantLabels(t, s.pod(t, "web"), "operating/restarter", "operation-type/restarter", "pre-check/restarter")
		})
	}
}

func TestBeginAfterAConflictDecidesAgain(t *testing.T) {
	s := newServer(t, controlled("web"))
	pod := s.pod(t, "web")
	other := adapter{id: "other", operationType: "restart"}
	s.beforePatch = func(s *server) {
		updated, err := podopslifecycle.Begin(s, other, s.pod(t, "web"))
		wantUpdated(t, updated, err)
	}
	var inUse *podopslifecycle.TypeInUseError
	if _, err := podopslifecycle.Begin(s, restarter(), pod); !errors.As(err, &inUse) || !slices.Equal(inUse.IDs, []string{"other"}) {
		t.Fatalf("got %v, want a TypeInUseError of the other id", err)
	}
	wantLabels(t, s.pod(t, "web"), "operating/other", "operation-type/other", "pre-check/other")
}

func TestAPodOfTheSameNameIsAnotherPod(t *testing.T) {
	s := newServer(t, controlled("web"))
	pod := s.pod(t, "web")
	successor := controlled("web")
	successor.UID = "another"
	if err := errors.Join(s.Delete(t.Context(), controlled("web")), s.Create(t.Context(), successor)); err != nil {
		t.Fatal(err)
	}
	s.annotate(t, "web")
	if _, err := podopslifecycle.Begin(s, restarter(), pod); !errors.Is(err, podopslifecycle.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	wantLabels(t, s.pod(t, "web"))
}

func TestBeginRefuses(t *testing.T) {
	terminating := controlled("web")
	terminating.Finalizers = []string{"example.com/wait"}
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	updating := controlled("web")
	updating.Labels["operating.podopslifecycle.kusionstack.io/restarter"] = "1"
	updating.Labels["operation-type.podopslifecycle.kusionstack.io/restarter"] = "update"
	long := adapter{id: strings.Repeat("a", 64), operationType: "restart"}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		adapter adapter
		is      error
		as      any
	}{
		"a pod that is not under PodOps": {pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, adapter: restarter(), is: podopslifecycle.ErrNotControlled},
		"a pod that is being deleted":    {pod: terminating, adapter: restarter(), is: podopslifecycle.ErrTerminating},
		"an id with another type":        {pod: updating, adapter: restarter(), as: new(*podopslifecycle.OtherTypeError)},
		"an id of 64 characters":         {pod: controlled("web"), adapter: long, as: new(*podopslifecycle.InvalidAdapterError)},
		"no type":                        {pod: controlled("web"), adapter: adapter{id: "a"}, as: new(*podopslifecycle.InvalidAdapterError)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tc.pod)
			updated, err := podopslifecycle.Begin(s, tc.adapter, s.pod(t, "web"))
			if updated || tc.is != nil && !errors.Is(err, tc.is) || tc.as != nil && !errors.As(err, tc.as) {
				t.Errorf("updated %t, error %v", updated, err)
			}
			if s.patches != 0 {
				t.Errorf("%d requests were sent", s.patches)
			}
		})
	}
}

func TestTwoIDsOfOneTypeWhereTheAdapterAllowsIt(t *testing.T) {
	s := newServer(t, controlled("web"))
	for _, id := range []string{"a", "b"} {
		updated, err := podopslifecycle.Begin(s, adapter{id: id, operationType: "restart", multi: true}, s.pod(t, "web"))
		wantUpdated(t, updated, err)
	}
	wantLabels(t, s.pod(t, "web"), "operating/a", "operating/b", "operation-type/a", "operation-type/b", "pre-check/a", "pre-check/b")
}

func TestBeginWithCleaningOldReplacesTheType(t *testing.T) {
	s := newServer(t, controlled("web"))
	update, scaleIn := adapter{id: "workload", operationType: "update"}, adapter{id: "workload", operationType: "scale-in"}
	updated, err := podopslifecycle.Begin(s, update, s.pod(t, "web"))
	wantUpdated(t, updated, err)
	s.grant(t, "web", "workload", "update", time.Now())

	pod := s.pod(t, "web")
	s.patches = 0
	updated, err = podopslifecycle.BeginWithCleaningOld(s, scaleIn, pod)
	wantUpdated(t, updated, err)
	if s.patches != 1 {
		t.Errorf("%d requests, want 1", s.patches)
	}
	if podopslifecycle.IsDuringOps(update, pod) || !podopslifecycle.IsDuringOps(scaleIn, pod) {
		t.Error("the id has not the new type")
	}
	if _, allowed := podopslifecycle.AllowOps(scaleIn, 0, pod); allowed {
		t.Error("the permit of the old type allows the new one")
	}
	var other *podopslifecycle.OtherTypeError
	if _, err := podopslifecycle.Finish(s, update, pod); !errors.As(err, &other) || other.Running != "scale-in" {
		t.Errorf("finishing the old type: %v", err)
	}
}

func TestUpdatesAreInTheRequest(t *testing.T) {
	s := newServer(t, controlled("web"))
	deleter := adapter{id: "deleter", operationType: "delete", whenBegin: podopslifecycle.PrepareDelete}
	pod := s.pod(t, "web")
	updated, err := podopslifecycle.Begin(s, deleter, pod, func(pod client.Object) (bool, error) {
		pod.SetAnnotations(map[string]string{"example.com/reason": "age"})
		return true, nil
	})
	wantUpdated(t, updated, err)
	stored := s.pod(t, "web")
	if stored.Labels["podopslifecycle.kusionstack.io/preparing-to-delete"] == "" || stored.Annotations["example.com/reason"] != "age" || s.patches != 1 {
		t.Errorf("labels %v, annotations %v, %d requests", stored.Labels, stored.Annotations, s.patches)
	}
	updated, err = podopslifecycle.Undo(s, deleter, pod, podopslifecycle.WithdrawDelete)
	wantUpdated(t, updated, err)
	if stored = s.pod(t, "web"); stored.Labels["podopslifecycle.kusionstack.io/preparing-to-delete"] != "" {
		t.Error("the announcement stays after undo")
	}
}

func TestAnErrorOfAnUpdateSendsNothing(t *testing.T) {
	s := newServer(t, controlled("web"))
	pod := s.pod(t, "web")
	before, failure := pod.DeepCopy(), errors.New("no ticket")
	failing := restarter()
	failing.whenBegin = func(pod client.Object) (bool, error) {
		pod.SetLabels(nil)
		return true, failure
	}
	if _, err := podopslifecycle.Begin(s, failing, pod); !errors.Is(err, failure) || s.patches != 0 {
		t.Errorf("error %v, %d requests", err, s.patches)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the object changed:\n%s", diff)
	}
}

func TestConflictsEnd(t *testing.T) {
	s := newServer(t, controlled("web"))
	var write func(s *server)
	write = func(s *server) {
		s.annotate(t, "web")
		s.beforePatch = write
	}
	s.beforePatch = write
	_, err := podopslifecycle.Begin(s, restarter(), s.pod(t, "web"))
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want the conflict", err)
	}
	if s.patches != 9 {
		t.Errorf("%d requests, want 9: five attempts, and a read between each two", s.patches)
	}
}

func TestACancelledContextEndsTheCall(t *testing.T) {
	s := newServer(t, controlled("web"))
	ctx, cancel := context.WithCancel(t.Context())
	pod := s.pod(t, "web")
	s.annotate(t, "web")
	s.beforePatch = func(*server) { cancel() }
	if _, err := podopslifecycle.BeginContext(ctx, s, restarter(), pod); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

func TestUnstructuredAndPartialObjects(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	anyKind := &unstructured.Unstructured{}
	anyKind.SetGroupVersionKind(gvk)
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	for name, pod := range map[string]client.Object{"unstructured": anyKind, "metadata": partial} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, controlled("web"))
			if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, pod); err != nil {
				t.Fatal(err)
			}
			updated, err := podopslifecycle.Begin(s, restarter(), pod)
			wantUpdated(t, updated, err)
			if !podopslifecycle.IsDuringOps(restarter(), pod) {
				t.Error("the object is not during ops")
			}
			wantLabels(t, s.pod(t, "web"), "operating/restarter", "operation-type/restarter", "pre-check/restarter")
		})
	}
}
