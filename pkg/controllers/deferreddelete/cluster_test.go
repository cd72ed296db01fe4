package deferreddelete

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/measured"
)

// start is after all times of the pods, and before any timeout that they start.
var start = builders.Epoch.Add(10 * time.Second)

// ownerReference refers to the one ReplicaSet.
var ownerReference = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-uid"}

func newSet(replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Generation: 1},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
}

func owned(name string) *builders.PodBuilder {
	return builders.MakePod(name).OwnedBy(ownerReference).Phase(corev1.PodRunning)
}

func serving(name string) *corev1.Pod { return owned(name).Available().Obj() }

// waiting returns a pod whose delete is deferred and waits for its rules.
func waiting(name string) *corev1.Pod {
	return recorded(owned(name).Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, start).Obj(), byOwner)
}

// recorded adds the record of a request to a pod.
func recorded(pod *corev1.Pod, request deferreddelete.Request) *corev1.Pod {
	since := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(request.Begin(pod, since))
	return pod
}

// prepared returns an unready pod whose deferred delete was permitted.
func prepared(name string) *builders.PodBuilder {
	return owned(name).Preparing(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).UnreadyByGate(builders.Epoch)
}

// granted returns a pod whose deferred delete is allowed now.
func granted(name string) *corev1.Pod {
	return recorded(owned(name).Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Obj(), byOwner)
}

// cluster is a cache that does not change by itself, and the requests that were sent.
type cluster struct {
	cache    client.Client
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	metrics  *Metrics
	repeats  *observation.Tracker
	requests []string
	err      error // to every write
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	w := &cluster{clock: clocktesting.NewFakeClock(start), recorder: events.NewFakeRecorder(10), registry: prometheus.NewRegistry()}
	w.repeats = observation.NewTracker(w.clock)
	var err error
	if w.metrics, err = NewMetrics(w.registry); err != nil {
		t.Fatal(err)
	}
	for i, object := range objects {
		object.SetResourceVersion(fmt.Sprint(100 + i))
	}
	w.cache = fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, replicasetpods.ControllerUIDField, replicasetpods.IndexByController).
		WithInterceptorFuncs(interceptor.Funcs{Patch: w.patch, Delete: w.delete}).Build()
	return w
}

func newStarter(w *cluster) *Starter {
	return NewStarter(w.cache, w.recorder, w.metrics, w.repeats, w.clock)
}

func (w *cluster) patch(_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	w.requests = append(w.requests, "patch "+object.GetName()+" "+string(data))
	object.SetResourceVersion("1000")
	return w.err
}

func (w *cluster) delete(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	applied := (&client.DeleteOptions{}).ApplyOptions(options)
	w.requests = append(w.requests, fmt.Sprintf("delete %s uid=%s resourceVersion=%s", object.GetName(), *applied.Preconditions.UID, *applied.Preconditions.ResourceVersion))
	return w.err
}

// sent returns the requests since the last call, sorted, with labels shortened.
func (w *cluster) sent() []string {
	requests := slices.Sorted(slices.Values(w.requests))
	w.requests = nil
	for i := range requests {
		requests[i] = strings.ReplaceAll(requests[i], ".podopslifecycle.kusionstack.io", "")
	}
	return requests
}

// events returns the reasons of the events since the last call.
func (w *cluster) events() []string {
	var reasons []string
	for {
		select {
		case event := <-w.recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

// cancelled returns how many deletes were cancelled, by their reason.
func (w *cluster) cancelled(t *testing.T) map[string]float64 {
	t.Helper()
	return measured.Values(t, w.registry, "podops_deletes_cancelled_total")
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}
