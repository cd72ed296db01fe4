package replicasetscale

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/replicasetscale"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/measured"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}}

// newSet returns the ReplicaSet web whose scale-down to the desired number is kept; owner is the name of
// its Deployment, empty for none.
func newSet(replicas int32, desired int, owner string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Annotations: map[string]string{
		appsv1alpha1.DesiredReplicasAnnotationKey: strconv.Itoa(desired), appsv1alpha1.DeploymentRevisionAnnotationKey: "1",
	}}}
	set.Spec.Replicas = &replicas
	if owner != "" {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner, UID: "d", Controller: new(true)}}
	}
	return set
}

func newDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "d", Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "2"},
	}}
}

func owned(name string) *builders.PodBuilder {
	reference := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-uid"}
	return builders.MakePod(name).OwnedBy(reference).Phase(corev1.PodRunning)
}

func granted(name string) *corev1.Pod {
	pod := owned(name).Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.PreviousDeletionCostAnnotationKey, "")
	return pod
}

// cluster is a cache that does not change by itself, and the requests that were sent.
type cluster struct {
	reconciler *Reconciler
	registry   *prometheus.Registry
	clock      *clocktesting.FakeClock
	recorder   *events.FakeRecorder
	requests   []string
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	w := &cluster{registry: prometheus.NewRegistry(), clock: clocktesting.NewFakeClock(builders.Epoch.Add(time.Hour)), recorder: events.NewFakeRecorder(10)}
	for i, object := range objects {
		object.SetResourceVersion(fmt.Sprint(100 + i))
	}
	c := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).
		WithInterceptorFuncs(interceptor.Funcs{Patch: w.patch}).Build()
	metrics, err := NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.reconciler = New(c, replicasetpods.Reader{Reader: c}, w.recorder, metrics, w.clock)
	return w
}

func (w *cluster) patch(_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	w.requests = append(w.requests, object.GetName()+" "+strings.ReplaceAll(string(data), "podopslifecycle.kusionstack.io/", ""))
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ResourceVersion, pod.UID = "1000", types.UID(pod.Name+"-uid")
		pod.Labels = map[string]string{appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID: "1"}
	}
	return err
}

func (w *cluster) reconcile(t *testing.T) (sent []string, result reconcile.Result) {
	t.Helper()
	w.requests = nil
	result, err := w.reconciler.Reconcile(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return w.requests, result
}

func TestBeginsOnceAsManyPodsAsWereRequested(t *testing.T) {
	w := newCluster(t, newSet(3, 1, "web"), newDeployment(),
		owned("web-0").Available().Obj(), owned("web-1").Phase(corev1.PodPending).Obj(), owned("web-2").Available().Obj())
	sent, _ := w.reconcile(t)
	if len(sent) != 2 || !strings.HasPrefix(sent[0], "web-1 ") || !strings.Contains(sent[0], `"controller.kubernetes.io/pod-deletion-cost":"-2147483647"`) {
		t.Errorf("sent %v, want the pending pod first, then one other", sent)
	}
	if again, _ := w.reconcile(t); len(again) > 0 {
		t.Errorf("sent %v, before the cache shows the first requests", again)
	}
}

func TestWakesTheDeploymentThenLowersTheReplicaSet(t *testing.T) {
	w := newCluster(t, newSet(2, 0, "web"), newDeployment(), granted("web-0"), granted("web-1"))
	if sent, result := w.reconcile(t); len(sent) > 0 || result.RequeueAfter != replicasetscale.WakeAfter {
		t.Errorf("sent %v, requeued after %v, want nothing yet", sent, result.RequeueAfter)
	}
	w.clock.Step(replicasetscale.WakeAfter)
	sent, _ := w.reconcile(t)
	if diff := cmp.Diff([]string{`web {"metadata":{"annotations":{"lowest-replicas":"0"},"uid":"web-uid"}}`}, sent); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	w.clock.Step(replicasetscale.LowerAfter)
	sent, _ = w.reconcile(t)
	want := []string{`web {"metadata":{"annotations":{"desired-replicas":null,"lowest-replicas":null},"resourceVersion":"100","uid":"web-uid"},"spec":{"replicas":0}}`}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(w.recorder.Events) != 1 {
		t.Errorf("%d events, want one", len(w.recorder.Events))
	}
}

func TestBeginsPodsBeyondTheReplicas(t *testing.T) {
	set := newSet(1, 0, "")
	set.Annotations = nil
	w := newCluster(t, set, owned("web-0").Available().Obj(), owned("web-1").Phase(corev1.PodPending).Obj())
	if sent, _ := w.reconcile(t); len(sent) != 1 || !strings.HasPrefix(sent[0], "web-1 ") {
		t.Errorf("sent %v, want the pending pod to begin", sent)
	}
}

// cancelled is a pod whose deletion was begun for its ReplicaSet, and ended without it.
func cancelled(name string) *corev1.Pod {
	pod := owned(name).Available().Obj()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.PreviousDeletionCostAnnotationKey, "")
	return pod
}

func TestPausesBeforeTheNextDeletionForADeployment(t *testing.T) {
	w := newCluster(t, newSet(2, 1, "web"), newDeployment(), cancelled("web-0"), owned("web-1").Available().Obj())
	sent, result := w.reconcile(t)
	if len(sent) != 1 || !strings.Contains(sent[0], `"previous-deletion-cost":null`) || result.RequeueAfter != replicasetscale.FirstPause {
		t.Errorf("sent %v, requeued after %v, want the deletion cost restored, and a pause", sent, result.RequeueAfter)
	}
}

func TestADeploymentChangesItsKeptReplicaSets(t *testing.T) {
	plain := newSet(1, 0, "web")
	plain.Name, plain.UID, plain.Annotations = "plain", "plain", nil
	w := newCluster(t, newSet(1, 0, "web"), plain, newDeployment())
	got := w.reconciler.replicaSetsOf(t.Context(), newDeployment())
	if !slices.Equal(got, []reconcile.Request{request}) {
		t.Errorf("requests %v, want that of the ReplicaSet with a kept scale-down", got)
	}
}

func TestForgetsDoneReplicaSets(t *testing.T) {
	set := newSet(1, 0, "")
	set.Annotations = nil
	w := newCluster(t, set, owned("web-0").Available().Obj())
	w.reconcile(t)
	if len(w.reconciler.state) > 0 {
		t.Errorf("remembers %v of a ReplicaSet without a kept scale-down", w.reconciler.state)
	}
}

// TestKeptScaleDownsAreCounted shows that a ReplicaSet counts while it has more replicas than requested.
func TestKeptScaleDownsAreCounted(t *testing.T) {
	w := newCluster(t, newSet(2, 1, "web"), newDeployment(), owned("web-0").Available().Obj(), owned("web-1").Available().Obj())
	check := func(what string, want float64) {
		t.Helper()
		w.reconcile(t)
		if got := measured.Values(t, w.registry, "podops_scale_downs_kept")[""]; got != want {
			t.Errorf("%s: %v are kept, want %v", what, got, want)
		}
	}
	check("requested", 1)
	check("reconciled again", 1)
	set := &appsv1.ReplicaSet{}
	if err := w.reconciler.client.Get(t.Context(), request.NamespacedName, set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Replicas = new(int32(1))
	if err := w.reconciler.client.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check("lowered, with a pod too many", 1)
	if err := w.reconciler.client.Delete(t.Context(), owned("web-1").Obj()); err != nil {
		t.Fatal(err)
	}
	check("without it", 0)
	set.Spec.Replicas = new(int32(2))
	if err := w.reconciler.client.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check("requested again", 1)
	if err := w.reconciler.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check("deleted", 0)
}
