package podrelease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/test/builders"
)

// trafficAdapter returns a registration for Services with the annotation lb: <name>.
func trafficAdapter(name string) *appsv1alpha1.TrafficAdapter {
	return &appsv1alpha1.TrafficAdapter{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1alpha1.TrafficAdapterSpec{
			Controller: "controller-" + name,
			Services:   []appsv1alpha1.ServiceMatch{{Annotations: []appsv1alpha1.AnnotationMatch{{Key: "lb", Value: &name}}}},
			Lease:      &appsv1alpha1.LeaseReference{Namespace: "lb-system", Name: name},
		},
	}
}

// balanced returns a Service of an adapter, which has reconciled it if controller is set.
func balanced(name, adapter, controller string) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Annotations: map[string]string{"lb": adapter},
		Labels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue},
	}}
	if controller != "" {
		service.Annotations[resourceconsist.ControllerAnnotationKey] = controller
		service.Finalizers = []string{resourceconsist.CleanFinalizer(name)}
	}
	return service
}

func runnerOf(t *testing.T, options Options, objects ...client.Object) *runner {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &runner{client: c, options: options, clock: clocktesting.NewFakePassiveClock(builders.Epoch), writes: map[types.UID]int{}}
}

func TestTheServicesOfRemovedAdaptersAreReleased(t *testing.T) {
	r := runnerOf(t, Options{Controllers: []string{"inside"}, Adapters: []string{"slb"}},
		trafficAdapter("slb"), trafficAdapter("other"),
		balanced("of-the-manager", "x", "inside"),
		balanced("reconciled", "slb", "controller-slb"),
		balanced("never-reconciled", "slb", ""),
		balanced("no-longer-matched", "x", "controller-slb"),
		balanced("of-another-adapter", "other", "controller-other"),
		balanced("taken-by-another", "slb", "controller-other"),
	)
	if err := errors.Join(r.findAdapters(t.Context()), r.findServices(t.Context()), r.releaseServices(t.Context())); err != nil {
		t.Fatal(err)
	}
	var released []string
	for _, service := range r.services {
		released = append(released, service.Name)
	}
	slices.Sort(released)
	if diff := cmp.Diff([]string{"never-reconciled", "no-longer-matched", "of-the-manager", "reconciled"}, released); diff != "" {
		t.Errorf("released Services (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"other"}, r.report.Adapters); diff != "" || r.report.Services != 3 {
		t.Errorf("%d Services with a clean finalizer, adapters that stay (-want +got):\n%s", r.report.Services, diff)
	}
	pod := builders.MakePod("web").Expect("Service/default/never-reconciled", resourceconsist.GenerateLifecycleFinalizer("never-reconciled")).Obj()
	value, removed := Decide(pod, r.goes("default"), builders.Epoch).Change.Annotations[appsv1alpha1.AvailableConditionsAnnotationKey]
	if !removed || value != nil {
		t.Error("a pod of a removed adapter still expects its finalizer")
	}
}

func TestAReleaseNamesTheAdapterThatItCannotRemove(t *testing.T) {
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lb-system", Name: "slb"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("slb-0"), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: builders.Epoch.Add(-time.Second)},
		},
	}
	for sentence, tc := range map[string]struct {
		adapter string
		objects []client.Object
		want    string
	}{
		"its program runs":   {"slb", []client.Object{trafficAdapter("slb"), held}, "program of TrafficAdapter slb runs"},
		"it does not exist":  {"sbl", []client.Object{trafficAdapter("slb")}, `"sbl"`},
		"its program is off": {"slb", []client.Object{trafficAdapter("slb")}, ""},
	} {
		err := runnerOf(t, Options{Adapters: []string{tc.adapter}}, tc.objects...).findAdapters(t.Context())
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", sentence, err)
		}
	}
}
