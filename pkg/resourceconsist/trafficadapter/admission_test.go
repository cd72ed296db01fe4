package trafficadapter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
	"github.com/podops-dev/podops/test/builders"
)

// reader returns a reader with the index of a cache, and a count of the Services that it returns.
func reader(t *testing.T, objects ...client.Object) (client.WithWatch, *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	read := 0
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Service{}, trafficadapter.ServiceField, trafficadapter.IndexServices).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if services, ok := list.(*corev1.ServiceList); ok {
					read += len(services.Items)
				}
				return err
			},
		}).Build(), &read
}

func pod() *corev1.Pod {
	return builders.MakePod("web-0").Label("app", "web").Label("pod-template-hash", "5d").Obj()
}

func selecting(selector map[string]string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Selector = selector }
}

func TestExpectedFinalizers(t *testing.T) {
	web := map[string]string{"Service/default/web": resourceconsist.GenerateLifecycleFinalizer("web")}
	registered := adapter("lb", everyService())
	for sentence, tc := range map[string]struct {
		objects []client.Object
		want    map[string]string
	}{
		"a Service that selects the pod":             {[]client.Object{registered, service("web")}, web},
		"a Service that selects every controlled":    {[]client.Object{registered, service("web", selecting(map[string]string{appsv1alpha1.ControlLabelKey: "true"}))}, web},
		"a Service with two labels":                  {[]client.Object{registered, service("web", selecting(map[string]string{"app": "web", "zone": "a"}))}, map[string]string{}},
		"a Service that selects other pods":          {[]client.Object{registered, service("web", selecting(map[string]string{"app": "db"}))}, map[string]string{}},
		"a Service without a selector":               {[]client.Object{registered, service("web", selecting(nil))}, map[string]string{}},
		"a Service of another namespace":             {[]client.Object{registered, service("web", func(s *corev1.Service) { s.Namespace = "other" })}, map[string]string{}},
		"a terminating Service":                      {[]client.Object{registered, service("web", terminating)}, map[string]string{}},
		"no adapter":                                 {[]client.Object{service("web")}, nil},
		"an adapter of other Services":               {[]client.Object{adapter("lb", appsv1alpha1.ServiceMatch{Annotations: []appsv1alpha1.AnnotationMatch{{Key: "x"}}}), service("web")}, map[string]string{}},
		"a Service that is not under PodOps":         {[]client.Object{registered, service("web", labelled(appsv1alpha1.ControlLabelKey, "no"))}, map[string]string{}},
		"a Service that another controller owns":     {[]client.Object{registered, service("web", annotated(resourceconsist.ControllerAnnotationKey, "haproxy"))}, map[string]string{}},
		"a Service of the second of two controllers": {[]client.Object{adapter("a", everyService()), registered, service("web", annotated(resourceconsist.ControllerAnnotationKey, "lb"))}, web},
	} {
		t.Run(sentence, func(t *testing.T) {
			c, _ := reader(t, tc.objects...)
			got, err := trafficadapter.NewAdmission(c).ExpectedFinalizers(t.Context(), pod())
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("expected finalizers (-want +got), %v:\n%s", err, diff)
			}
		})
	}
}

func terminating(s *corev1.Service) {
	s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: builders.Epoch}, []string{"example.com/clean"}
}

// TestAdmissionFollowsARegistrationThatIsEdited shows that a parsed registration is used for its
// own generation only.
func TestAdmissionFollowsARegistrationThatIsEdited(t *testing.T) {
	registered := adapter("lb", everyService())
	c, _ := reader(t, registered, service("web"))
	admission := trafficadapter.NewAdmission(c)
	expects := func() int {
		t.Helper()
		got, err := admission.ExpectedFinalizers(t.Context(), pod())
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if expects() != 1 {
		t.Error("the Service is not expected")
	}
	registered.Generation, registered.Spec.Services = 2, []appsv1alpha1.ServiceMatch{{Type: corev1.ServiceTypeLoadBalancer}}
	if err := c.Update(t.Context(), registered); err != nil {
		t.Fatal(err)
	}
	if expects() != 0 {
		t.Error("admission uses the old registration")
	}
	if err := c.Delete(t.Context(), registered); err != nil {
		t.Fatal(err)
	}
	if expects() != 0 {
		t.Error("admission uses a deleted registration")
	}
}

// TestAdmissionReadsFewServices shows that the cost of a pod does not grow with the Services of
// its namespace that select other pods.
func TestAdmissionReadsFewServices(t *testing.T) {
	objects := []client.Object{adapter("lb", everyService()), service("web")}
	for i := range 200 {
		objects = append(objects, service(fmt.Sprintf("other-%d", i), selecting(map[string]string{"app": fmt.Sprintf("other-%d", i), appsv1alpha1.ControlLabelKey: "true"})))
	}
	c, read := reader(t, objects...)
	got, err := trafficadapter.NewAdmission(c).ExpectedFinalizers(t.Context(), pod())
	if err != nil || len(got) != 1 || *read != 1 {
		t.Errorf("read %d of 201 Services, got %v, %v", *read, got, err)
	}
}

func TestJoinGivesAFinalizerToOneEmployer(t *testing.T) {
	away := errors.New("no cache")
	source := func(expected map[string]string, err error) trafficadapter.Expected {
		return func(context.Context, *corev1.Pod) (map[string]string, error) { return expected, err }
	}
	got, err := trafficadapter.Join(
		source(map[string]string{"Ingress/default/web": "prot/1"}, away),
		source(map[string]string{"Service/default/web": "prot/1", "Service/default/db": "prot/2"}, nil),
	)(t.Context(), pod())
	want := map[string]string{"Ingress/default/web": "prot/1", "Service/default/db": "prot/2"}
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, away) {
		t.Errorf("joined (-want +got), %v:\n%s", err, diff)
	}
}
