package alibabacloudslb_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// TestTheSampleMatchesTheServicesOfTheAdapter shows that the manager, which reads the TrafficAdapter,
// and the adapter agree about each Service.
func TestTheSampleMatchesTheServicesOfTheAdapter(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "samples", "adapters", "slb.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n---\n")
	var registered appsv1alpha1.TrafficAdapter
	if err := yaml.UnmarshalStrict([]byte(first), &registered); err != nil {
		t.Fatal(err)
	}
	if registered.Spec.Controller != slb.ControllerName {
		t.Errorf("the controller is %s, want %s", registered.Spec.Controller, slb.ControllerName)
	}
	registration, err := trafficadapter.Parse(&registered)
	if err != nil {
		t.Fatal(err)
	}
	adapter := &slb.Adapter{}
	rapid.Check(t, func(t *rapid.T) {
		service := &corev1.Service{}
		service.Labels, service.Annotations = map[string]string{}, map[string]string{}
		some := func(values map[string]string, key string, of ...string) {
			if rapid.Bool().Draw(t, key) {
				values[key] = rapid.SampledFrom(of).Draw(t, key)
			}
		}
		some(service.Labels, appsv1alpha1.ControlLabelKey, "true", "false")
		some(service.Labels, slb.LoadBalancerIDLabelKey, "", "lb-1")
		some(service.Annotations, slb.BackendsAnnotationKey, "", slb.BackendsManaged, "x")
		some(service.Annotations, slb.UsedGroupsAnnotationKey, "", "rsp-a")
		service.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{"", corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer}).Draw(t, "type")
		service.Spec.LoadBalancerClass = rapid.SampledFrom([]*string{nil, ptr.To("alibabacloud.com/clb"), ptr.To("other")}).Draw(t, "class")
		has := adapter.EmployerPredicates().Create(event.CreateEvent{Object: service})
		if got := registration.Matches(service); got != has {
			t.Fatalf("the registration matches %t, the adapter has it %t: %v", got, has, service)
		}
	})
}
