package operator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

const (
	good = "1.0"
	next = "2.0"
	bad  = "3.0-bad" // its health checks fail
)

// errEnded is the result of every call of an operator that has ended.
var errEnded = errors.New("the operator has ended")

// simulation is an API server, and everything in a cluster but the operator.
type simulation struct {
	t       *testing.T
	api     client.Client // of the simulation
	clock   *testingclock.FakeClock
	current string // version of the current revision
	leader  string
	members map[string]bool
	unseen  bool // the store was not observed yet

	forbidJobs bool // no Job can be created
	events     *events.FakeRecorder
	uids       int

	// calls and writes of operators; all calls after the last fail. If lost is true, the last call
	// takes effect, and its result is lost.
	calls, writes, last int
	lost                bool

	// wrote are the numbers of the calls that write.
	wrote map[int]bool

	*operator.Reconciler
}

func newSimulation(t *testing.T, replicas int32) *simulation {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kvstorev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &simulation{t: t, clock: testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), members: map[string]bool{}, wrote: map[int]bool{}}
	cluster := &kvstorev1.KVStoreCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db-uid", Generation: 1},
		Spec: kvstorev1.KVStoreClusterSpec{
			Version: good, Replicas: replicas, UpgradeStrategy: kvstorev1.CanaryUpgradeStrategy,
			Storage: kvstorev1.StorageSpec{ClassName: "fast", Size: "1Gi"},
		},
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).
		WithStatusSubresource(&kvstorev1.KVStoreCluster{}, &appsv1.StatefulSet{}, &batchv1.Job{}, &corev1.Pod{}).Build()
	w.api = api
	w.restart()
	return w
}

// restart starts another operator, whose calls do not fail.
func (w *simulation) restart() {
	w.last = -1
	c := interceptor.NewClient(w.api.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return w.call(false, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return w.call(false, func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, isJob := o.(*batchv1.Job); isJob && w.forbidJobs {
				return apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), errors.New("exceeded quota: jobs"))
			}
			return w.call(true, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.call(true, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.call(true, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.call(true, func() error { return w.remove(ctx, c, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return w.call(true, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
	w.events = events.NewFakeRecorder(1000)
	w.Reconciler = operator.New(c, w, plan.Settings{Image: "my-repo/kvstore", BackupTarget: "http://backup", ProgressDeadline: 10 * time.Minute},
		w.events, w.clock)
}

// call makes a call of an operator.
func (w *simulation) call(write bool, effect func() error) error {
	w.calls++
	if w.last >= 0 && w.calls > w.last {
		return errEnded
	}
	if w.last == w.calls && !w.lost {
		return errEnded
	}
	if write {
		w.writes++
		w.wrote[w.calls] = true
	}
	err := effect()
	if w.last == w.calls {
		return errEnded
	}
	return err
}

// ended reports whether the operator has ended.
func (w *simulation) ended() bool { return w.last >= 0 && w.calls >= w.last }

// remove deletes an object. PodOps holds the delete of a pod, but for the pods that it has allowed.
func (w *simulation) remove(ctx context.Context, c client.Client, o client.Object, opts ...client.DeleteOption) error {
	if pod, ok := o.(*corev1.Pod); ok {
		w.deletePod(pod)
		return nil
	}
	return c.Delete(ctx, o, opts...)
}

// Observe implements operator.Store.
func (w *simulation) Observe(types.NamespacedName, map[string]string) plan.Observation {
	if w.unseen {
		return plan.Observation{}
	}
	return plan.Observation{At: w.clock.Now(), Leader: w.leader, Members: slices.Sorted(maps.Keys(w.members))}
}

// Refresh implements operator.Store.
func (w *simulation) Refresh(types.NamespacedName) {}

// MoveLeader implements operator.Store.
func (w *simulation) MoveLeader(_ types.NamespacedName, move plan.Move) { w.leader = move.To[0] }

// RemoveMember implements operator.Store.
func (w *simulation) RemoveMember(_ types.NamespacedName, pod string) { delete(w.members, pod) }

// Forget implements operator.Store.
func (w *simulation) Forget(types.NamespacedName) {}

func (w *simulation) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// cluster returns the cluster as it is stored; nil if it is gone.
func (w *simulation) cluster() *kvstorev1.KVStoreCluster {
	w.t.Helper()
	cluster := &kvstorev1.KVStoreCluster{}
	err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: "default", Name: "db"}, cluster)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return cluster
}

// edit changes the spec of the cluster.
func (w *simulation) edit(change func(*kvstorev1.KVStoreClusterSpec)) {
	w.t.Helper()
	cluster := w.cluster()
	change(&cluster.Spec)
	cluster.Generation++
	w.must(w.api.Update(w.t.Context(), cluster))
}

func (w *simulation) set() *appsv1.StatefulSet {
	w.t.Helper()
	set := &appsv1.StatefulSet{}
	err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: "default", Name: "db"}, set)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return set
}

func (w *simulation) pods() map[int32]*corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.api.List(w.t.Context(), &list))
	pods := map[int32]*corev1.Pod{}
	for i := range list.Items {
		if ordinal, ok := plan.Ordinal("db", list.Items[i].Name); ok {
			pods[ordinal] = &list.Items[i]
		}
	}
	return pods
}

func operating(pod *corev1.Pod) (ids []string) {
	for key := range pod.Labels {
		if id, ok := strings.CutPrefix(key, appsv1alpha1.OperatingLabelPrefix+"/"); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func offTraffic(pod *corev1.Pod) bool {
	return slices.ContainsFunc(operating(pod), func(id string) bool { return pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] != "" })
}

// controllers lets every other controller act once.
func (w *simulation) controllers() {
	w.t.Helper()
	w.podOps()
	w.statefulSets()
	w.runJobs()
	w.clock.Step(time.Second)
}

// podOps lets one pod at a time go off traffic, and ends lifecycles that are undone.
func (w *simulation) podOps() {
	pods := w.pods()
	busy := false
	for _, ordinal := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[ordinal]
		for key := range maps.Clone(pod.Labels) {
			id, undone := strings.CutPrefix(key, appsv1alpha1.UndoOperationTypeLabelPrefix+"/")
			if undone {
				maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return strings.HasSuffix(key, "/"+id) })
				w.must(w.api.Update(w.t.Context(), pod))
			}
		}
		busy = busy || offTraffic(pod)
	}
	for _, ordinal := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[ordinal]
		for _, id := range operating(pod) {
			if !busy {
				pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+id] = fmt.Sprint(w.clock.Now().UnixNano())
				delete(pod.Labels, appsv1alpha1.ServiceAvailableLabelKey)
				w.must(w.api.Update(w.t.Context(), pod))
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
				w.must(w.api.Status().Update(w.t.Context(), pod))
				busy = true
			}
		}
	}
}

func (w *simulation) statefulSets() {
	set, pods := w.set(), w.pods()
	if set == nil || set.DeletionTimestamp != nil {
		for _, pod := range pods {
			w.must(w.api.Delete(w.t.Context(), pod))
		}
		return
	}
	partition, rolling := int32(0), set.Spec.UpdateStrategy.RollingUpdate != nil
	if rolling {
		partition = *set.Spec.UpdateStrategy.RollingUpdate.Partition
	}
	update := versionOf(set.Spec.Template.Spec)
	if w.current == "" {
		w.current = update
	}
	updated := true
	for ordinal := *set.Spec.Replicas - 1; ordinal >= 0; ordinal-- {
		pod := pods[ordinal]
		switch {
		case pod == nil:
			version := update
			if ordinal < partition {
				version = w.current
			}
			w.createPod(set, ordinal, version)
		case versionOf(pod.Spec) == update:
		case rolling && ordinal >= partition:
			w.deletePod(pod)
			return
		default:
			updated = false
		}
	}
	for ordinal, pod := range pods {
		if ordinal >= *set.Spec.Replicas {
			w.deletePod(pod)
			w.deleteClaim(pod)
		}
	}
	if updated && rolling {
		w.current = update
	}
}

func versionOf(spec corev1.PodSpec) string {
	return strings.TrimPrefix(spec.Containers[0].Image, "my-repo/kvstore:")
}

func (w *simulation) createPod(set *appsv1.StatefulSet, ordinal int32, version string) {
	w.uids++
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.UID = "default", plan.PodName("db", ordinal), types.UID(fmt.Sprint("pod-", w.uids))
	pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = "1"
	pod.Spec.Containers[0].Image = "my-repo/kvstore:" + version
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	w.must(w.api.Create(w.t.Context(), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}
	w.must(w.api.Status().Update(w.t.Context(), pod))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: plan.VolumeName + "-" + pod.Name, Labels: plan.MemberLabels("db"),
	}}
	w.must(client.IgnoreAlreadyExists(w.api.Create(w.t.Context(), claim)))
	w.members[pod.Name] = true
	if w.leader == "" {
		w.leader = pod.Name
	}
}

// deletePod deletes a pod that may go.
func (w *simulation) deletePod(pod *corev1.Pod) {
	if !offTraffic(pod) {
		return
	}
	if w.leader == pod.Name && len(w.pods()) > 1 {
		w.t.Errorf("the leader %s goes", pod.Name)
	}
	w.must(w.api.Delete(w.t.Context(), pod))
}

// deleteClaim deletes the claim of a pod that was scaled in and is gone.
func (w *simulation) deleteClaim(pod *corev1.Pod) {
	if !offTraffic(pod) {
		return
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: plan.VolumeName + "-" + pod.Name}}
	w.must(client.IgnoreNotFound(w.api.Delete(w.t.Context(), claim)))
}

func (w *simulation) runJobs() {
	var jobs batchv1.JobList
	w.must(w.api.List(w.t.Context(), &jobs))
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if len(job.Status.Conditions) > 0 {
			continue
		}
		kind := batchv1.JobComplete
		if strings.Contains(job.Name, "-check-") && versionOf(job.Spec.Template.Spec) == bad {
			kind = batchv1.JobFailed
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clock.Now())}}
		w.must(w.api.Status().Update(w.t.Context(), job))
	}
}

// run lets the operator and the other controllers act until the operator writes nothing any more. An
// operator that has ended is replaced.
func (w *simulation) run() {
	w.t.Helper()
	for still, rounds := 0, 0; still < 3; rounds++ {
		if rounds == 500 {
			w.t.Fatalf("the cluster changes for ever: %+v", w.cluster())
		}
		writes, pods := w.writes, w.fingerprint()
		_, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "db"}})
		switch {
		case w.ended():
			w.restart()
		case err != nil:
			w.t.Fatal(err)
		}
		w.controllers()
		if still++; w.writes != writes || w.fingerprint() != pods {
			still = 0
		}
	}
}

// fingerprint returns the versions of all pods, and what the other controllers still change.
func (w *simulation) fingerprint() string {
	text := ""
	pods := w.pods()
	for _, ordinal := range slices.Sorted(maps.Keys(pods)) {
		text += fmt.Sprint(ordinal, pods[ordinal].UID, versionOf(pods[ordinal].Spec), operating(pods[ordinal]), offTraffic(pods[ordinal]), " ")
	}
	return text
}
