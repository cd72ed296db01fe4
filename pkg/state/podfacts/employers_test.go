package podfacts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/test/builders"
)

const finalizer = appsv1alpha1.ProtectionFinalizerPrefix + "/lb"

func service(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func terminating(service *corev1.Service) *corev1.Service {
	now := metav1.NewTime(builders.Epoch)
	service.DeletionTimestamp, service.Finalizers = &now, []string{"resource-consist.kusionstack.io/clean-web"}
	return service
}

func reader(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, podfacts.EmployerField, podfacts.IndexByEmployer).Build()
}

var web = map[string]string{"app": "web"}

func webPod() *builders.PodBuilder {
	return builders.MakePod("web-0").Gate(true).Ready().Label("app", "web")
}

func TestEmployersThatAreGone(t *testing.T) {
	expecting := func(employer string) *corev1.Pod { return webPod().Expect(employer, finalizer).Obj() }
	for sentence, tc := range map[string]struct {
		pod         *corev1.Pod
		cached, api []client.Object // api is as cached unless set
		want        []string
	}{
		"a Service that selects the pod": {
			pod: expecting("Service/default/web"), cached: []client.Object{service("web", web)},
		},
		"a Service that does not exist": {
			pod: expecting("Service/default/web"), want: []string{"Service/default/web"},
		},
		"a Service that selects other pods": {
			pod: expecting("Service/default/web"), cached: []client.Object{service("web", map[string]string{"app": "db"})},
			want: []string{"Service/default/web"},
		},
		"a Service without a selector selects none": {
			pod: expecting("Service/default/web"), cached: []client.Object{service("web", nil)},
			want: []string{"Service/default/web"},
		},
		"a Service that waits for its clean finalizer": {
			pod: expecting("Service/default/web"), cached: []client.Object{terminating(service("web", web))},
			want: []string{"Service/default/web"},
		},
		"a Service of another namespace": {
			pod: expecting("Service/other/web"), cached: []client.Object{service("web", web)},
			want: []string{"Service/other/web"},
		},
		"a Service that the cache has not seen yet": {
			pod: expecting("Service/default/web"), api: []client.Object{service("web", web)},
		},
		"a Service whose new selector the cache has not seen yet": {
			pod: expecting("Service/default/web"), cached: []client.Object{service("web", map[string]string{"app": "old"})},
			api: []client.Object{service("web", web)},
		},
		"an employer of a kind that cannot be read": {pod: expecting("Ingress/default/web")},
		"a key that names no object":                {pod: expecting("Service/default")},
		"a Service that is gone and whose finalizer is still on the pod": {
			pod: webPod().Expect("Service/default/web", finalizer).Finalizer(finalizer).Obj(),
		},
		"a terminating pod": {
			pod: webPod().Expect("Service/default/web", finalizer).Finalizer("example.com/other").Terminating(builders.Epoch).Obj(),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if tc.api == nil {
				tc.api = tc.cached
			}
			employers := podfacts.NewEmployers(reader(tc.cached...), reader(tc.api...), clocktesting.NewFakeClock(builders.Epoch))
			got, err := employers.Gone(t.Context(), tc.pod, lifecycle.NewPodFacts(tc.pod))
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("gone (-want +got), %v:\n%s", err, diff)
			}
		})
	}
}

// TestAnEntryThatAControllerPutsBackIsKept shows that the entry is dropped once, and again only
// after a while, or once the Service has selected the pod in between.
func TestAnEntryThatAControllerPutsBackIsKept(t *testing.T) {
	clock := clocktesting.NewFakeClock(builders.Epoch)
	services := reader()
	employers := podfacts.NewEmployers(services, services, clock)
	pod := webPod().Expect("Service/default/web", finalizer).Obj()
	gone := func() int {
		t.Helper()
		list, err := employers.Gone(t.Context(), pod, lifecycle.NewPodFacts(pod))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for range 2 {
		if gone() != 1 {
			t.Fatal("the entry is not reported as gone")
		}
	}
	employers.Forgot(pod, []string{"Service/default/web"})
	if gone() != 0 {
		t.Error("an entry that was put back is dropped at once")
	}
	clock.Step(11 * time.Minute)
	if gone() != 1 {
		t.Error("the entry is never dropped again")
	}
	employers.Forgot(pod, []string{"Service/default/web"})
	if err := services.Create(t.Context(), service("web", web)); err != nil {
		t.Fatal(err)
	}
	if gone() != 0 {
		t.Error("the entry of a Service that selects the pod is dropped")
	}
	if err := services.Delete(t.Context(), service("web", web)); err != nil {
		t.Fatal(err)
	}
	if gone() != 1 {
		t.Error("the Service existed in between, and its entry stays")
	}
}

// TestDroppedEmployersAreSharedByNamespace shows that a namespace whose pods name any number of Services
// that do not exist changes nothing for the pods of another namespace.
func TestDroppedEmployersAreSharedByNamespace(t *testing.T) {
	services := reader()
	employers := podfacts.NewEmployers(services, services, clocktesting.NewFakeClock(builders.Epoch))
	gone := func(pod *corev1.Pod) int {
		t.Helper()
		list, err := employers.Gone(t.Context(), pod, lifecycle.NewPodFacts(pod))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := webPod().Namespace("quiet").UID("before").Expect("Service/quiet/web", finalizer).Obj()
	employers.Forgot(before, []string{"Service/quiet/web"})
	loud := webPod().Namespace("loud").Obj()
	for i := range 30_000 {
		employers.Forgot(loud, []string{fmt.Sprintf("Service/loud/web-%d", i)})
	}
	if gone(before) != 0 {
		t.Error("an entry that was put back is dropped at once")
	}
	after := webPod().Namespace("quiet").UID("after").Expect("Service/quiet/web", finalizer).Obj()
	if gone(after) != 1 {
		t.Error("the entry of a Service that does not exist is kept")
	}
}

func TestAnEmployerThatCannotBeReadIsNotGone(t *testing.T) {
	away := errors.New("the API server is unavailable")
	broken := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
	}).Build()
	pod := webPod().Expect("Service/default/web", finalizer).Obj()
	employers := podfacts.NewEmployers(reader(), broken, clocktesting.NewFakeClock(builders.Epoch))
	if gone, err := employers.Gone(t.Context(), pod, lifecycle.NewPodFacts(pod)); len(gone) > 0 || !errors.Is(err, away) {
		t.Errorf("gone %v, error %v", gone, err)
	}
}

// TestTheEndOfAnEmploymentWakesTheRightPods shows that pods are reconciled that name the Service and
// lack its finalizer, for the events after which it may employ fewer pods.
func TestTheEndOfAnEmploymentWakesTheRightPods(t *testing.T) {
	pods := reader(
		webPod().Expect("Service/default/web", finalizer).Obj(),
		builders.MakePod("web-1").Expect("Service/default/web", finalizer).Finalizer(finalizer).Obj(),
		builders.MakePod("db-0").Expect("Service/default/db", finalizer).Obj(),
		builders.MakePod("bad-0").Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, "{").Obj(),
	)
	got, err := podfacts.Waiting(t.Context(), pods, service("web", web))
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "default", Name: "web-0"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("requests (-want +got), %v:\n%s", err, diff)
	}
	labelled := service("web", web)
	labelled.Labels = map[string]string{"new": "label"}
	for sentence, tc := range map[string]struct {
		after *corev1.Service
		want  bool
	}{
		"it is labelled":         {labelled, false},
		"it selects others":      {service("web", map[string]string{"app": "db"}), true},
		"it selects none":        {service("web", nil), true},
		"it begins to terminate": {terminating(service("web", web)), true},
	} {
		if got := podfacts.EmploymentEnds().Update(event.UpdateEvent{ObjectOld: service("web", web), ObjectNew: tc.after}); got != tc.want {
			t.Errorf("when %s: passes %t, want %t", sentence, got, tc.want)
		}
	}
	if podfacts.EmploymentEnds().Create(event.CreateEvent{Object: labelled}) || !podfacts.EmploymentEnds().Delete(event.DeleteEvent{Object: labelled}) {
		t.Error("want deletions to pass, and no creations")
	}
}
