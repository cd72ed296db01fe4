package replicasetscale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/measured"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}}

// newSet returns the ReplicaSet web, of revision 1; owner is the name of its Deployment, empty for none.
func newSet(replicas int32, owner string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Annotations: map[string]string{
		appsv1alpha1.DeploymentRevisionAnnotationKey: "1",
	}}}
	set.Spec.Replicas, set.Status.AvailableReplicas = &replicas, replicas
	if owner != "" {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner, UID: "d", Controller: new(true)}}
	}
	return set
}

// successor returns the ReplicaSet of revision 2, all of whose pods are available.
func successor(replicas int32) *appsv1.ReplicaSet {
	set := newSet(replicas, "web")
	set.Status.Replicas = replicas
	set.Name, set.UID, set.Annotations = "successor", "successor-uid", map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "2"}
	return set
}

func newDeployment(replicas int32) *appsv1.Deployment {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "d", Annotations: map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "2"},
	}}
	deployment.Spec.Replicas = &replicas
	deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(replicas))}
	return deployment
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

// noDeletes cancels nothing: package deferreddelete has the tests of that. It records exchanges.
type noDeletes struct {
	exchanged []string

	// forgone is the answer of Cancel.
	forgone bool
}

func (d *noDeletes) Exchange(_ context.Context, pod *corev1.Pod) (bool, error) {
	d.exchanged = append(d.exchanged, pod.Name)
	return true, nil
}

func (d *noDeletes) Cancel(context.Context, int, int, []*corev1.Pod) (forgone bool, again time.Duration, err error) {
	return d.forgone, 0, nil
}

// cluster is a cache that does not change by itself, and the requests that were sent.
type cluster struct {
	reconciler *Reconciler
	deletes    *noDeletes
	registry   *prometheus.Registry
	clock      *clocktesting.FakeClock
	recorder   *events.FakeRecorder
	requests   []string
}

// count counts the pods of a ReplicaSet, as its controller does.
func count(set *appsv1.ReplicaSet, objects []client.Object) {
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && metav1.IsControlledBy(pod, set) && replicasetscale.IsActive(pod) {
			set.Status.Replicas++
		}
	}
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	w := &cluster{registry: prometheus.NewRegistry(), clock: clocktesting.NewFakeClock(builders.Epoch.Add(time.Hour)), recorder: events.NewFakeRecorder(10)}
	for i, object := range objects {
		object.SetResourceVersion(fmt.Sprint(100 + i))
		if set, ok := object.(*appsv1.ReplicaSet); ok {
			count(set, objects)
		}
	}
	c := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).
		WithIndex(&appsv1.ReplicaSet{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).
		WithInterceptorFuncs(interceptor.Funcs{Patch: w.patch}).Build()
	metrics, err := NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.deletes = &noDeletes{}
	w.reconciler = New(c, w.deletes, w.recorder, metrics, w.clock)
	return w
}

func (w *cluster) patch(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	w.requests = append(w.requests, object.GetName()+" "+strings.ReplaceAll(string(data), "podopslifecycle.kusionstack.io/", ""))
	if pod, ok := object.(*corev1.Pod); ok {
		err = errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
		pod.ResourceVersion = "1000"
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID, "1")
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
	w := newCluster(t, newSet(3, "web"), successor(2), newDeployment(3),
		owned("web-0").Available().Obj(), owned("web-1").Phase(corev1.PodPending).Obj(), owned("web-2").Available().Obj())
	sent, _ := w.reconcile(t)
	if len(sent) != 2 || !strings.HasPrefix(sent[0], "web-1 ") || !strings.Contains(sent[0], `"controller.kubernetes.io/pod-deletion-cost":"-2147483647"`) {
		t.Errorf("sent %v, want the pending pod first, then one other", sent)
	}
	if again, _ := w.reconcile(t); len(again) > 0 {
		t.Errorf("sent %v, before the cache shows the first requests", again)
	}
}

// TestCountsDeletionsOfOtherReplicaSets has a pod between two revisions that the status had as unavailable when its
// deletion began, and is available before the cache of pods shows that deletion.
func TestCountsDeletionsOfOtherReplicaSets(t *testing.T) {
	middle := successor(1)
	middle.CreationTimestamp, middle.Status = metav1.NewTime(builders.Epoch), appsv1.ReplicaSetStatus{}
	newest := successor(0)
	newest.Name, newest.UID, newest.Annotations = "newest", "newest-uid", map[string]string{appsv1alpha1.DeploymentRevisionAnnotationKey: "3"}
	deployment := newDeployment(4)
	deployment.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = "3"
	deployment.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(1))
	surge := owned("successor-0").Available().Obj()
	surge.OwnerReferences[0].Name, surge.OwnerReferences[0].UID = middle.Name, middle.UID
	w := newCluster(t, newSet(4, "web"), middle, newest, deployment, surge, owned("web-0").Available().Obj(), owned("web-1").Available().Obj(),
		owned("web-2").Available().Obj(), owned("web-3").Available().Obj())
	if _, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(middle)}); err != nil {
		t.Fatal(err)
	}
	if len(w.requests) != 1 || !strings.HasPrefix(w.requests[0], "successor-0 ") {
		t.Fatalf("sent %v, want the unavailable pod to begin", w.requests)
	}
	middle.Status.AvailableReplicas = 1
	if err := w.reconciler.client.Status().Update(t.Context(), middle); err != nil {
		t.Fatal(err)
	}
	if sent, _ := w.reconcile(t); len(sent) != 1 || !strings.HasPrefix(sent[0], "web-") {
		t.Errorf("sent %v, want one pod to begin: two may be unavailable, and one has begun elsewhere", sent)
	}
}

func TestWakesTheDeployment(t *testing.T) {
	w := newCluster(t, newSet(2, "web"), successor(2), newDeployment(2), granted("web-0"), granted("web-1"))
	if sent, result := w.reconcile(t); len(sent) > 0 || result.RequeueAfter != replicasetscale.WakeAfter {
		t.Errorf("sent %v, requeued after %v, want nothing yet", sent, result.RequeueAfter)
	}
	w.clock.Step(replicasetscale.WakeAfter)
	sent, _ := w.reconcile(t)
	want := []string{`web {"metadata":{"annotations":{"woken":"` + w.clock.Now().UTC().Format(time.RFC3339Nano) + `"},"uid":"web-uid"}}`}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestBeginsPodsBeyondTheReplicas(t *testing.T) {
	w := newCluster(t, newSet(1, ""), owned("web-0").Available().Obj(), owned("web-1").Phase(corev1.PodPending).Obj())
	if sent, _ := w.reconcile(t); len(sent) != 1 || !strings.HasPrefix(sent[0], "web-1 ") {
		t.Errorf("sent %v, want the pending pod to begin", sent)
	}
}

// TestDropsKeptRequestsOfEarlierVersions shows that a ReplicaSet alone, which no controller lowers again, has an event.
func TestDropsKeptRequestsOfEarlierVersions(t *testing.T) {
	for owner, events := range map[string]int{"": 1, "web": 0} {
		set := newSet(2, owner)
		set.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey] = "1"
		w := newCluster(t, set, newDeployment(2), owned("web-0").Available().Obj(), owned("web-1").Available().Obj())
		sent, _ := w.reconcile(t)
		if diff := cmp.Diff([]string{`web {"metadata":{"annotations":{"desired-replicas":null},"uid":"web-uid"}}`}, sent); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if len(w.recorder.Events) != events {
			t.Errorf("Deployment %q: %d events, want %d", owner, len(w.recorder.Events), events)
		}
	}
}

// cancelled is a pod whose deletion was begun for its ReplicaSet, and ended without it.
func cancelled(name string) *corev1.Pod {
	pod := owned(name).Available().Obj()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.PreviousDeletionCostAnnotationKey, "")
	return pod
}

func TestPausesBeforeTheNextDeletionForADeployment(t *testing.T) {
	w := newCluster(t, newSet(2, "web"), successor(1), newDeployment(2), cancelled("web-0"), owned("web-1").Available().Obj())
	sent, result := w.reconcile(t)
	if len(sent) != 1 || !strings.Contains(sent[0], `"previous-deletion-cost":null`) || result.RequeueAfter != replicasetscale.FirstPause {
		t.Errorf("sent %v, requeued after %v, want the deletion cost restored, and a pause", sent, result.RequeueAfter)
	}
}

// TestPausesAfterADeleteThatWasNotCarriedOut shows that no other pod goes off traffic at once, which might come back as well.
func TestPausesAfterADeleteThatWasNotCarriedOut(t *testing.T) {
	w := newCluster(t, newSet(2, "web"), successor(1), newDeployment(2), granted("web-0"), owned("web-1").Available().Obj())
	w.deletes.forgone = true
	w.reconcile(t)
	w.deletes.forgone = false
	undone := owned("web-0").Available().Obj()
	if err := w.reconciler.client.Update(t.Context(), undone); err != nil {
		t.Fatal(err)
	}
	if sent, result := w.reconcile(t); len(sent) > 0 || result.RequeueAfter != replicasetscale.FirstPause {
		t.Errorf("sent %v, requeued after %v, want a pause", sent, result.RequeueAfter)
	}
	w.clock.Step(replicasetscale.FirstPause)
	if sent, _ := w.reconcile(t); len(sent) != 1 {
		t.Errorf("sent %v, want one pod to begin", sent)
	}
}

// TestAPodThatBeginsAgainKeepsItsFormerCost has a pod whose deletion was cancelled, beside one that leaves.
func TestAPodThatBeginsAgainKeepsItsFormerCost(t *testing.T) {
	w := newCluster(t, newSet(0, ""), granted("web-0"), cancelled("web-1"))
	sent, _ := w.reconcile(t)
	if len(sent) != 1 || strings.Contains(sent[0], `"previous-deletion-cost":null`) {
		t.Errorf("sent %v, want the pod to begin again", sent)
	}
}

// TestEventsReachTheOldReplicaSets shows that a change of a Deployment or of its newest ReplicaSet may change how many
// pods an old ReplicaSet has too many.
func TestEventsReachTheOldReplicaSets(t *testing.T) {
	done := newSet(0, "web")
	done.Name, done.UID = "done", "done-uid"
	w := newCluster(t, newSet(1, "web"), successor(3), done, newDeployment(4))
	names := func(requests []reconcile.Request) (names []string) {
		for _, request := range requests {
			names = append(names, request.Name)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	want := []string{"successor", "web"}
	if diff := cmp.Diff(want, names(w.reconciler.replicaSetsFor(t.Context(), newDeployment(4)))); diff != "" {
		t.Errorf("of the Deployment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, names(w.reconciler.affected(t.Context(), successor(3)))); diff != "" {
		t.Errorf("of the newest ReplicaSet (-want +got):\n%s", diff)
	}
	begun := successor(0)
	begun.Name = "begun"
	if diff := cmp.Diff(want, names(w.reconciler.affected(t.Context(), begun))); diff != "" {
		t.Errorf("of a ReplicaSet that has no pod yet (-want +got):\n%s", diff)
	}
}

// TestACostThatChangesHasAnotherPodGo shows that the deletion of a pod that a user has made costly is cancelled, and that
// the cheaper pod begins once it is.
func TestACostThatChangesHasAnotherPodGo(t *testing.T) {
	costly := owned("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
	costly.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: "", corev1.PodDeletionCost: "1000"}
	w := newCluster(t, newSet(1, ""), costly, owned("web-1").Available().Obj())
	w.reconcile(t)
	if diff := cmp.Diff([]string{"web-0"}, w.deletes.exchanged); diff != "" {
		t.Errorf("exchanged (-want +got):\n%s", diff)
	}
	idle := owned("web-1").Available().Obj()
	if !w.reconciler.mayGo(idle) {
		t.Error("a change of the other pod is not seen")
	}
	costly.Labels = owned("web-0").Available().Obj().Labels
	costly.Annotations = map[string]string{corev1.PodDeletionCost: "1000"}
	if err := w.reconciler.client.Update(t.Context(), costly); err != nil {
		t.Fatal(err)
	}
	if sent, _ := w.reconcile(t); len(sent) != 1 || !strings.HasPrefix(sent[0], "web-1 ") {
		t.Errorf("sent %v, want the deletion of the other pod to begin", sent)
	}
}

func TestForgetsDoneReplicaSets(t *testing.T) {
	w := newCluster(t, newSet(1, ""), owned("web-0").Available().Obj())
	w.reconcile(t)
	if len(w.reconciler.state) > 0 {
		t.Errorf("remembers %v of a ReplicaSet without a surplus", w.reconciler.state)
	}
}

// TestKeptScaleDownsAreCounted shows that a ReplicaSet counts while it has more replicas than requested.
func TestKeptScaleDownsAreCounted(t *testing.T) {
	w := newCluster(t, newSet(2, "web"), successor(1), newDeployment(2), owned("web-0").Available().Obj(), owned("web-1").Available().Obj())
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
	if err := w.reconciler.client.Create(t.Context(), owned("web-2").Available().Obj()); err != nil {
		t.Fatal(err)
	}
	check("with another pod", 1)
	if err := w.reconciler.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check("deleted", 0)
}
