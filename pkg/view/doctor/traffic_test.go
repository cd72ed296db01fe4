package doctor_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/doctor"
)

// withService adds a Service that selects the pods.
func withService(spec corev1.ServiceSpec) func(*testing.T, *doctor.Snapshot) {
	return func(_ *testing.T, s *doctor.Snapshot) {
		spec.Selector = map[string]string{"app": "web"}
		s.Services = append(s.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Pods[0].Namespace, Name: "slow"}, Spec: spec})
	}
}

// TestServicesOfSettledPodsAreNotReported shows that pods with a settle time of their own, an adapter, and other pods are no finding.
func TestServicesOfSettledPodsAreNotReported(t *testing.T) {
	local := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}
	for name, change := range map[string]func(*doctor.Snapshot){
		"settle times": func(s *doctor.Snapshot) {
			for i := range s.Pods {
				metav1.SetMetaDataAnnotation(&s.Pods[i].ObjectMeta, appsv1alpha1.SettleTimeAnnotationKey, "30s")
			}
		},
		"an adapter": func(s *doctor.Snapshot) {
			s.Services[len(s.Services)-1].Finalizers = []string{"resource-consist.kusionstack.io/clean-slow"}
		},
		"other pods":  func(s *doctor.Snapshot) { s.Services[len(s.Services)-1].Spec.Selector["app"] = "db" },
		"no selector": func(s *doctor.Snapshot) { s.Services[len(s.Services)-1].Spec.Selector = nil },
		"a cluster IP": func(s *doctor.Snapshot) {
			s.Services[len(s.Services)-1].Spec.Type = corev1.ServiceTypeClusterIP
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			withService(local)(t, s)
			change(s)
			for _, finding := range doctor.Inspect(*s, doctor.Options{}, now).Findings {
				if finding.Check == "service-not-confirmed" {
					t.Error(finding.Text)
				}
			}
		})
	}
}
