package haproxy_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/podops-dev/podops/pkg/adapters/haproxy"
)

func TestServicesOfTheAdapter(t *testing.T) {
	const runtime, backend = haproxy.RuntimeAnnotationKey, haproxy.BackendAnnotationKey
	for sentence, tc := range map[string]struct {
		control     string
		annotations map[string]string
		want        bool
	}{
		"a Service that names an HAProxy":                       {"true", map[string]string{runtime: "/a", backend: "b"}, true},
		"a Service with one of two annotations":                 {"true", map[string]string{backend: "b"}, true},
		"a Service without the control label":                   {"", map[string]string{runtime: "/a", backend: "b"}, false},
		"a Service that names no HAProxy":                       {"true", map[string]string{haproxy.WeightAnnotationKey: "1"}, false},
		"a Service that no longer names one, with servers left": {"true", map[string]string{haproxy.InUseAnnotationKey: "unix:/a b"}, false},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"kusionstack.io/control": tc.control}, Annotations: tc.annotations,
		}}
		adapter := haproxy.New(nil, haproxy.Options{}, nil)
		if got := adapter.EmployerPredicates().Create(event.CreateEvent{Object: service}); got != tc.want {
			t.Errorf("%s: %v, want %v", sentence, got, tc.want)
		}
	}
}
