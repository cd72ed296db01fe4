package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/test/builders"
)

// settle is the settle time of the manager.
const settle = 2 * time.Second

var now = time.Unix(1_700_000_000, 0)

func newPod(edit func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: "u1", ResourceVersion: "10",
			Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
		},
		Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: appsv1alpha1.ServiceReadyGate}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady"},
		}},
	}
	edit(pod)
	return pod
}

// preparing edits a pod so that its traffic is off and it only waits for operate.
func preparing(id, operationType string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for prefix, value := range map[string]string{
			appsv1alpha1.OperatingLabelPrefix: "1", appsv1alpha1.OperationTypeLabelPrefix: operationType,
			appsv1alpha1.PreCheckedLabelPrefix: "1", appsv1alpha1.PrepareLabelPrefix: "1", appsv1alpha1.PreparingLabelPrefix: "1",
		} {
			pod.Labels[prefix+"/"+id] = value
		}
		pod.Labels[appsv1alpha1.OperationPermissionLabelPrefix+"/"+operationType] = "1"
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionFalse})
	}
}

type fixture struct {
	reconciler *Reconciler
	patches    []string
	recorder   *events.FakeRecorder
	metrics    *prometheus.Registry
	clock      *clocktesting.FakeClock
}

// newFixture returns a fixture with one set of pods in the cache and another set in the API server.
func newFixture(t *testing.T, cached, apiReader []client.Object, patchErr error) *fixture {
	t.Helper()
	f := &fixture{recorder: events.NewFakeRecorder(10)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	writes := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cached...).WithInterceptorFuncs(interceptor.Funcs{
		Get: sharePods(t),
		SubResourcePatch: func(_ context.Context, _ client.Client, subresource string, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			data, err := patch.Data(object)
			if err != nil {
				return err
			}
			f.patches = append(f.patches, subresource+" "+string(data))
			object.SetUID("u1")
			object.SetResourceVersion("11")
			return patchErr
		},
	}).Build()
	f.metrics, f.clock = prometheus.NewRegistry(), clocktesting.NewFakeClock(now)
	problems, err := NewProblems(f.metrics)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := NewMetrics(f.metrics, f.clock)
	if err != nil {
		t.Fatal(err)
	}
	f.reconciler = New(Config{
		Reader: writes, APIReader: fake.NewClientBuilder().WithObjects(apiReader...).Build(), Writer: podwriter.New(writes, f.recorder, f.clock),
		Recorder: f.recorder, Facts: podfacts.New(writes, writes, nil, f.clock), Problems: problems, Metrics: metrics,
		Options: lifecycle.Options{Settle: settle}, Clock: f.clock,
	})
	return f
}

// sharePods returns the same object for each read of a pod, and an error of the test if it was modified.
func sharePods(t *testing.T) func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	shared, before := map[client.ObjectKey]*corev1.Pod{}, map[client.ObjectKey]*corev1.Pod{}
	t.Cleanup(func() {
		if diff := cmp.Diff(before, shared); diff != "" {
			t.Errorf("pods of the cache were modified (-before +after):\n%s", diff)
		}
	})
	return func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		pod, isPod := object.(*corev1.Pod)
		if !isPod || shared[key] == nil {
			if err := c.Get(ctx, key, object, options...); err != nil || !isPod {
				return err
			}
			shared[key], before[key] = pod.DeepCopy(), pod.DeepCopy()
		}
		*pod = *shared[key]
		return nil
	}
}

// none returns a cluster without pods.
func (f *fixture) none() client.Client { return fake.NewClientBuilder().Build() }

func (f *fixture) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := f.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web-0"}})
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

func TestNewPodGetsGateAndAvailabilityInOneRequest(t *testing.T) {
	f := newFixture(t, []client.Object{newPod(func(*corev1.Pod) {})}, nil, nil)
	f.reconcile(t)
	want := []string{`status {"metadata":{"labels":{"podopslifecycle.kusionstack.io/service-available":"1700000000000000000"},` +
		`"resourceVersion":"10","uid":"u1"},"status":{"conditions":[{"lastTransitionTime":"2023-11-14T22:13:20Z",` +
		`"message":"updated by PodOpsLifecycle","status":"True","type":"pod.kusionstack.io/service-ready"}]}}`}
	if diff := cmp.Diff(want, f.patches); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	f.reconcile(t)
	if len(f.patches) != 1 {
		t.Errorf("the pod is written again before the watch has shown the first write: %v", f.patches)
	}
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	f := newFixture(t, []client.Object{newPod(func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = "1"
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionTrue},
		}
	})}, nil, nil)
	f.reconcile(t)
	if len(f.patches) != 0 {
		t.Errorf("requests: %v, want none", f.patches)
	}
}

func TestOperateIsGrantedOnceTrafficIsOff(t *testing.T) {
	f := newFixture(t, []client.Object{newPod(preparing("a", "update"))}, nil, nil)
	f.reconcile(t)
	if len(f.patches) != 1 {
		t.Fatalf("requests: %v, want one", f.patches)
	}
	if len(f.recorder.Events) > 0 {
		t.Errorf("event %q: Permitted and ServiceAvailable include this step", <-f.recorder.Events)
	}
}

func TestDeferredDeleteReplacesOperate(t *testing.T) {
	for name, tc := range map[string]struct {
		recorded bool
		want     int
	}{
		"a pending delete, which PodOps carries out":          {recorded: true, want: 0},
		"a controller that began by labels waits for operate": {recorded: false, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *corev1.Pod) {
				preparing(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType)(pod)
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "r1", Controller: new(true)}}
				if tc.recorded {
					request := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner}
					record := request.Begin(pod, pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID])
					pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(record)}
				}
			})
			f := newFixture(t, []client.Object{pod}, nil, nil)
			f.reconcile(t)
			if len(f.patches) != tc.want {
				t.Errorf("requests: %v, want %d", f.patches, tc.want)
			}
		})
	}
}

func TestPodThatLeftPodOpsIsReleased(t *testing.T) {
	left := newPod(func(pod *corev1.Pod) {
		preparing("a", "update")(pod)
		delete(pod.Labels, appsv1alpha1.ControlLabelKey)
	})
	f := newFixture(t, nil, []client.Object{left}, nil)
	f.reconcile(t)
	if len(f.patches) != 1 {
		t.Fatalf("requests: %v, want one that opens the gate", f.patches)
	}
}

func TestConflictIsNoError(t *testing.T) {
	for name, err := range map[string]error{
		"conflict":  apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("changed")),
		"not found": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-0"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []client.Object{newPod(func(*corev1.Pod) {})}, nil, err)
			f.reconcile(t)
		})
	}
	f := newFixture(t, []client.Object{newPod(func(*corev1.Pod) {})}, nil, errors.New("no connection"))
	if _, err := f.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web-0"}}); err == nil {
		t.Error("another error is not returned")
	}
}

// TestProblemsAreSharedByNamespace shows that the pods of one namespace never cause an event of another
// one to be recorded again.
func TestProblemsAreSharedByNamespace(t *testing.T) {
	last, unchanged := newLastProblems(), lifecycle.Problem{Reason: lifecycle.ProblemGateMissing, Text: "text"}
	quiet, loud := builders.MakePod("web-0").Namespace("quiet").UID("quiet").Obj(), builders.MakePod("web-0").Namespace("loud").Obj()
	if !last.changed(quiet, unchanged) {
		t.Fatal("the first problem is not recorded")
	}
	for i := range problemBytes / fairshare.EntryBytes {
		loud.UID = types.UID(fmt.Sprint(i))
		last.changed(loud, unchanged)
	}
	if last.changed(quiet, unchanged) {
		t.Error("an unchanged problem is recorded again")
	}
	if bytes := last.last.Bytes(); bytes > problemBytes {
		t.Errorf("%d bytes are kept, want %d at most", bytes, problemBytes)
	}
}

func TestProblemsAreRecordedOnce(t *testing.T) {
	tests := map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"operating without a type": {
			edit: func(pod *corev1.Pod) { pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/a"] = "1" },
			want: "Warning InvalidLifecycle label operating.podopslifecycle.kusionstack.io/a needs " +
				"operation-type.podopslifecycle.kusionstack.io/a: nothing progresses without the type",
		},
		"annotation that is no JSON": {
			edit: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: "{"}
			},
			want: "Warning BadAvailableConditions annotation pod.kusionstack.io/available-conditions: " +
				"decoding JSON: unexpected end of JSON input; the pod is not marked available",
		},
		"a settle time that is no duration": {
			edit: func(pod *corev1.Pod) { pod.Annotations = map[string]string{appsv1alpha1.SettleTimeAnnotationKey: "5"} },
			want: `Warning BadAnnotation annotation podopslifecycle.kusionstack.io/settle-time is "5", want a duration from 0s to 10m0s such as 10s; ` +
				"it counts as absent",
		},
		"a kubelet that has not followed the gate": {
			edit: func(pod *corev1.Pod) {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
					Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionTrue, Reason: appsv1alpha1.ReasonKubeletNotSyncing,
				})
			},
			want: "Warning KubeletNotSyncing the kubelet has not made the pod Ready although its gate is open: it is not available until then",
		},
		"waiting without a gate": {
			edit: func(pod *corev1.Pod) {
				pod.Spec.ReadinessGates = nil
				for prefix, value := range map[string]string{
					appsv1alpha1.OperatingLabelPrefix: "1", appsv1alpha1.OperationTypeLabelPrefix: "update", appsv1alpha1.PreCheckLabelPrefix: "1",
				} {
					pod.Labels[prefix+"/a"] = value
				}
			},
			want: "Warning GateMissing the pod was created without the readiness gate pod.kusionstack.io/service-ready: " +
				"only finalizers keep traffic off while it is operated on",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []client.Object{newPod(tc.edit)}, nil, nil)
			f.reconcile(t)
			f.reconcile(t)
			var recorded []string
			for len(f.recorder.Events) > 0 {
				if text := <-f.recorder.Events; text[:len("Warning")] == "Warning" {
					recorded = append(recorded, text)
				}
			}
			if diff := cmp.Diff([]string{tc.want}, recorded); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if counted, err := f.metrics.Gather(); len(counted) != 1 || len(counted[0].GetMetric()) != 1 || counted[0].GetMetric()[0].GetCounter().GetValue() != 1 {
				t.Errorf("counted %v, %v, want one problem", counted, err)
			}
		})
	}
}

// TestAnEmployerThatIsGoneIsDroppedInTheWriteThatMakesThePodAvailable uses a pod that was created
// for a Service that no longer exists.
func TestAnEmployerThatIsGoneIsDroppedInTheWriteThatMakesThePodAvailable(t *testing.T) {
	pod := newPod(func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{` +
			`"Service/shop/gone":"prot.podopslifecycle.kusionstack.io/1","Service/shop/web":"prot.podopslifecycle.kusionstack.io/2"}}`}
		pod.Finalizers = []string{"prot.podopslifecycle.kusionstack.io/2"}
	})
	f := newFixture(t, []client.Object{pod}, nil, nil)
	f.reconcile(t)
	want := []string{`status {"metadata":{"annotations":{"pod.kusionstack.io/available-conditions":` +
		`"{\"expectedFinalizers\":{\"Service/shop/web\":\"prot.podopslifecycle.kusionstack.io/2\"}}"},` +
		`"labels":{"podopslifecycle.kusionstack.io/service-available":"1700000000000000000"},` +
		`"resourceVersion":"10","uid":"u1"},"status":{"conditions":[{"lastTransitionTime":"2023-11-14T22:13:20Z",` +
		`"message":"updated by PodOpsLifecycle","status":"True","type":"pod.kusionstack.io/service-ready"}]}}`}
	if diff := cmp.Diff(want, f.patches); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestOperateWaitsForEndpointsOnlyWhereAServiceHasSome shows that the settle time of the manager
// applies to pods that a Service selects, and that a pod may set its own.
func TestOperateWaitsForEndpointsOnlyWhereAServiceHasSome(t *testing.T) {
	service := func(selector map[string]string) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: selector}}
	}
	for sentence, tc := range map[string]struct {
		service    client.Object
		annotation string
		want       time.Duration
	}{
		"no Service":                      {},
		"a Service that selects the pod":  {service: service(map[string]string{"app": "web"}), want: settle},
		"a Service that selects another":  {service: service(map[string]string{"app": "db"})},
		"a Service without a selector":    {service: service(nil)},
		"a pod with a longer settle time": {annotation: "30s", want: 30 * time.Second},
		"a pod without settle time":       {service: service(map[string]string{"app": "web"}), annotation: "0s"},
		"a malformed settle time":         {service: service(map[string]string{"app": "web"}), annotation: "-1s", want: settle},
		"a settle time out of bounds":     {service: service(map[string]string{"app": "web"}), annotation: "11m", want: settle},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := newPod(preparing("a", "update"))
			pod.Labels["app"] = "web"
			if tc.annotation != "" {
				pod.Annotations = map[string]string{appsv1alpha1.SettleTimeAnnotationKey: tc.annotation}
			}
			objects := []client.Object{pod}
			if tc.service != nil {
				objects = append(objects, tc.service)
			}
			f := newFixture(t, objects, nil, nil)
			got := f.reconcile(t).RequeueAfter
			if got != tc.want || (len(f.patches) == 0) != (tc.want > 0) {
				t.Fatalf("waits %s and sends %v, want %s", got, f.patches, tc.want)
			}
			f.clock.Step(tc.want)
			if f.reconcile(t); len(f.patches) != 1 {
				t.Errorf("requests after the wait: %v, want one", f.patches)
			}
		})
	}
}

// TestAnInvalidLifecycleIsAConditionOfThePod shows that one write adds the condition and a later one
// removes it.
func TestAnInvalidLifecycleIsAConditionOfThePod(t *testing.T) {
	f := newFixture(t, []client.Object{newPod(func(pod *corev1.Pod) {
		pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/a"] = "1"
		pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = "1"
		pod.Status.Conditions[1] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionTrue})
	})}, nil, nil)
	f.reconcile(t)
	want := []string{`status {"metadata":{"resourceVersion":"10","uid":"u1"},"status":{"conditions":[{"lastTransitionTime":"2023-11-14T22:13:20Z",` +
		`"message":"label operating.podopslifecycle.kusionstack.io/a needs operation-type.podopslifecycle.kusionstack.io/a: nothing progresses without the type",` +
		`"reason":"InvalidLifecycle","status":"True","type":"podopslifecycle.kusionstack.io/InvalidLifecycle"}]}}`}
	if diff := cmp.Diff(want, f.patches); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
