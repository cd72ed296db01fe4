package podfacts_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/test/builders"
)

// TestServicesLetAPodSettle shows which Services make a pod settle that the adapter of the Service web protects.
func TestServicesLetAPodSettle(t *testing.T) {
	protected := func() *builders.PodBuilder {
		return builders.MakePod("web-0").Label("app", "web").Unready(builders.Epoch).Gate(false).Preparing("a", "update").Expect("Service/default/web", finalizer)
	}
	away := errors.New("away")
	for sentence, tc := range map[string]struct {
		pod      *builders.PodBuilder
		services []client.Object
		err      error
		want     lifecycle.Services
	}{
		"the Service that protects it":            {pod: protected(), services: []client.Object{service("web", web)}, want: lifecycle.ServicesSome},
		"a plain Service beside it":               {pod: protected(), services: []client.Object{service("web", web), service("plain", web)}, want: lifecycle.ServicesSome},
		"a plain Service of other pods":           {pod: protected(), services: []client.Object{service("plain", map[string]string{"app": "db"})}, want: lifecycle.ServicesNone},
		"a Service without a selector":            {pod: protected(), services: []client.Object{service("plain", nil)}, want: lifecycle.ServicesNone},
		"no Service":                              {pod: protected(), want: lifecycle.ServicesNone},
		"a finalizer that is left":                {pod: protected().Finalizer(finalizer), services: []client.Object{service("plain", web)}, want: lifecycle.ServicesUnknown},
		"a pod that is Ready":                     {pod: protected().Ready(), services: []client.Object{service("plain", web)}, want: lifecycle.ServicesUnknown},
		"a pod with a settle time":                {pod: protected().Annotation(appsv1alpha1.SettleTimeAnnotationKey, "1s"), services: []client.Object{service("plain", web)}, want: lifecycle.ServicesUnknown},
		"Services that cannot be read, may be so": {pod: protected(), err: away, want: lifecycle.ServicesUnknown},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := failing(t, tc.err, &corev1.ServiceList{}, tc.services...)
			pod := tc.pod.Obj()
			got, err := podfacts.NewEmployers(c, c, clocktesting.NewFakeClock(builders.Epoch)).Services(t.Context(), pod, lifecycle.NewPodFacts(pod))
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %v and %v, want %v and %v", got, err, tc.want, tc.err)
			}
		})
	}
}
