package podlifecycle

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
	"github.com/podops-dev/podops/test/measured"
)

const lb = appsv1alpha1.ProtectionFinalizerPrefix + "/lb"

// held returns a pod that has waited for a service to take its traffic off.
func held(edit func(*corev1.Pod), since time.Duration) *corev1.Pod {
	return newPod(func(pod *corev1.Pod) {
		preparing("a", "update")(pod)
		at := strconv.FormatInt(now.Add(-since).UnixNano(), 10)
		pod.Labels[appsv1alpha1.PrepareLabelPrefix+"/a"], pod.Labels[appsv1alpha1.PreparingLabelPrefix+"/a"] = at, at
		pod.Finalizers = []string{lb}
		pod.Annotations = map[string]string{
			appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{"Ingress/shop/cart":"` + lb + `"}}`,
		}
		gateCondition(pod).Message = appsv1alpha1.ServiceReadyMessage
		edit(pod)
	})
}

const waitsForOff = "waits for Ingress/shop/cart to confirm that traffic is off (finalizer " + lb + ")"

// explained sets the message of the condition of such a pod.
func explained(pod *corev1.Pod) {
	gateCondition(pod).Reason, gateCondition(pod).Message = appsv1alpha1.ReasonPreparing, appsv1alpha1.ServiceReadyMessage+": "+waitsForOff
}

// TestTrafficThatDoesNotMoveIsShown shows that it is reported once, ten seconds after the permit and
// not again after a restart, and removed when the traffic has moved.
func TestTrafficThatDoesNotMoveIsShown(t *testing.T) {
	nothing := func(*corev1.Pod) {}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		patches []string
		event   string
		wake    time.Duration
		counted float64
	}{
		"a moment ago": {pod: held(nothing, 4*time.Second), wake: 6 * time.Second},
		"for long": {
			pod: held(nothing, 12*time.Second), counted: 1,
			patches: []string{`"message":"updated by PodOpsLifecycle: ` + waitsForOff + `","reason":"Preparing","type"`},
			event:   "Warning TrafficStillOn " + waitsForOff + " for 12s",
		},
		"for long, and it was shown": {pod: held(explained, 12*time.Second), counted: 1},
		"it is off, after it was shown": {
			pod: held(func(pod *corev1.Pod) {
				explained(pod)
				pod.Finalizers = nil
			}, time.Hour),
			patches: []string{`"message":"updated by PodOpsLifecycle","reason":null,"type"`},
		},
		"without the gate the condition reports that, and the event what it waits for": {
			pod: held(func(pod *corev1.Pod) {
				pod.Spec.ReadinessGates, pod.Status.Conditions = nil, nil
			}, 12*time.Second), counted: 1,
			patches: []string{`"reason":"GateMissing"`},
			event:   "Warning TrafficStillOn " + waitsForOff,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, []client.Object{tc.pod}, nil, nil)
			if result := f.reconcile(t); result.RequeueAfter != tc.wake && tc.wake > 0 {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, tc.wake)
			}
			if len(f.patches) != len(tc.patches) || len(f.patches) == 1 && !strings.Contains(f.patches[0], tc.patches[0]) {
				t.Errorf("requests %v, want %v", f.patches, tc.patches)
			}
			var event string
			if len(f.recorder.Events) > 0 {
				event = <-f.recorder.Events
			}
			if diff := cmp.Diff(tc.event, event); diff != "" {
				t.Errorf("event differs (-want +got):\n%s", diff)
			}
			if got := waitingFor(t, f, "off", "known"); got != tc.counted {
				t.Errorf("%v pods count as waiting, want %v", got, tc.counted)
			}
		})
	}
}

// TestAPodThatIsGoneDoesNotCount shows that a deleted pod does not count as waiting.
func TestAPodThatIsGoneDoesNotCount(t *testing.T) {
	f := newFixture(t, []client.Object{held(func(pod *corev1.Pod) { pod.Annotations = nil }, time.Minute)}, nil, nil)
	f.reconcile(t)
	if got := waitingFor(t, f, "off", "unknown"); got != 1 {
		t.Errorf("%v pods count as waiting for an unknown owner, want 1", got)
	}
	f.reconciler.Reader, f.reconciler.APIReader = f.none(), f.none()
	f.reconcile(t)
	if got := waitingFor(t, f, "off", "unknown"); got != 0 {
		t.Errorf("%v deleted pods count as waiting", got)
	}
}

// TestNewPodWaitsForItsTraffic shows the event of a pod whose traffic was never on.
func TestNewPodWaitsForItsTraffic(t *testing.T) {
	pod := newPod(func(pod *corev1.Pod) {
		at := metav1.NewTime(now.Add(-30 * time.Second))
		pod.Annotations = map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: `{"expectedFinalizers":{"Ingress/shop/cart":"` + lb + `"}}`}
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: appsv1alpha1.ServiceReadyGate, Status: corev1.ConditionTrue, LastTransitionTime: at, Message: appsv1alpha1.ServiceReadyMessage},
		}
	})
	f := newFixture(t, []client.Object{pod}, nil, nil)
	f.reconcile(t)
	want := "Warning TrafficNotOn waits for Ingress/shop/cart to confirm that traffic is on (finalizer " + lb + " is missing) for 30s"
	if got := <-f.recorder.Events; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if len(f.patches) != 1 || !strings.Contains(f.patches[0], `"reason":"Completing"`) {
		t.Errorf("requests %v", f.patches)
	}
}

func waitingFor(t *testing.T, f *fixture, traffic, owner string) float64 {
	t.Helper()
	var metric dto.Metric
	if err := f.reconciler.Metrics.waiting.WithLabelValues(traffic, owner).Write(&metric); err != nil {
		t.Fatal(err)
	}
	return metric.GetGauge().GetValue()
}

// TestTheOldestWaitForAControllerIsMeasured shows that the oldest of the pods counts, under the controller of the
// Service if that is known, until it does not wait any more.
func TestTheOldestWaitForAControllerIsMeasured(t *testing.T) {
	expecting := func(name, employer string, since time.Duration) *corev1.Pod {
		return held(func(pod *corev1.Pod) {
			pod.Name, pod.UID = name, types.UID(name)
			pod.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = `{"expectedFinalizers":{"` + employer + `":"` + lb + `"}}`
		}, since)
	}
	young, old := expecting("young", "Service/shop/cart", 12*time.Second), expecting("old", "Service/shop/cart", time.Minute)
	other := expecting("other", "Ingress/shop/cart", 30*time.Second)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cart", Annotations: map[string]string{resourceconsist.ControllerAnnotationKey: "haproxy"},
	}}
	f := newFixture(t, []client.Object{young, old, other, service}, nil, nil)
	reconcileAll := func(pods ...*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			if _, err := f.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, measured.Values(t, f.metrics, "podops_finalizer_oldest_wait_seconds")); diff != "" {
			t.Errorf("seconds (-want +got):\n%s", diff)
		}
	}
	const haproxy, unnamed = "controller=haproxy,namespace=shop,traffic=off", "controller=lb,namespace=shop,traffic=off"
	reconcileAll(young, old, other)
	check(map[string]float64{haproxy: 60, unnamed: 30})
	f.clock.Step(time.Second)
	f.reconciler.Metrics.forget(client.ObjectKeyFromObject(old))
	f.reconciler.Metrics.forget(client.ObjectKeyFromObject(other))
	check(map[string]float64{haproxy: 13})
	f.reconciler.Metrics.forget(client.ObjectKeyFromObject(young))
	check(nil)
	if places := f.reconciler.Metrics.names.Len(); places != 0 {
		t.Errorf("%d controllers that no pod waits for have a place", places)
	}
}

// TestEveryFinalizerOfAPodIsMeasured shows that a pod counts for each controller, once for a controller with two
// finalizers.
func TestEveryFinalizerOfAPodIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry, clocktesting.NewFakeClock(now))
	if err != nil {
		t.Fatal(err)
	}
	pod := held(func(pod *corev1.Pod) { pod.Finalizers = []string{lb + "-a", lb + "-b", lb + "-c"} }, time.Minute)
	controller := map[string]string{lb + "-a": "haproxy", lb + "-b": "haproxy", lb + "-c": "slb"}
	key := client.ObjectKeyFromObject(pod)
	for range 2 {
		m.see(key, lifecycle.NewPodFacts(pod), now, func(finalizer string) string { return controller[finalizer] })
	}
	want := map[string]float64{"controller=haproxy,namespace=shop,traffic=off": 60, "controller=slb,namespace=shop,traffic=off": 60}
	if diff := cmp.Diff(want, measured.Values(t, registry, "podops_finalizer_oldest_wait_seconds")); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
	m.forget(key)
	if got := measured.Values(t, registry, "podops_finalizer_oldest_wait_seconds"); got != nil || m.names.Len() != 0 {
		t.Errorf("%v and %d names are left of a pod that is gone", got, m.names.Len())
	}
}

// TestControllersBeyondTheBoundShareASeries shows that pods of one namespace which name many finalizers take no
// series from another namespace.
func TestControllersBeyondTheBoundShareASeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry, clocktesting.NewFakeClock(now))
	if err != nil {
		t.Fatal(err)
	}
	wait := func(namespace, controller string) {
		pod := held(func(*corev1.Pod) {}, time.Minute)
		m.see(types.NamespacedName{Namespace: namespace, Name: controller}, lifecycle.NewPodFacts(pod), now, func(string) string { return controller })
	}
	for i := range 3 * maxControllersPerNamespace {
		wait("loud", strconv.Itoa(i))
	}
	wait("quiet", "lb")
	got := measured.Values(t, registry, "podops_finalizer_oldest_wait_seconds")
	if want := maxControllersPerNamespace + 2; len(got) != want {
		t.Errorf("%d series, want %d", len(got), want)
	}
	for _, series := range []string{"controller=lb,namespace=quiet,traffic=off", "controller=other,namespace=other,traffic=off"} {
		if got[series] != 60 {
			t.Errorf("series %s is %v, want 60", series, got[series])
		}
	}
}

// A finalizer may have any name behind the slash, also that of the shared series.
func TestAControllerNamedLikeTheSharedSeriesTakesNoPlace(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry(), clocktesting.NewFakeClock(now))
	if err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "loud", Name: "web-0"}
	m.see(key, lifecycle.NewPodFacts(held(func(*corev1.Pod) {}, time.Minute)), now, func(string) string { return metricseries.Other })
	if m.forget(key); m.names.Len() != 0 {
		t.Errorf("%d places are taken for ever", m.names.Len())
	}
}
