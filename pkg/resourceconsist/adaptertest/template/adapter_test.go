package main

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// TestConformance runs the suite. Replace the fake provider by yours, in memory or as a process.
func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Config{
		New: func(testing.TB) adaptertest.Fixture {
			provider, faults := adaptertest.NewFakeFaults()
			cluster := adaptertest.NewServiceCluster(scheme.Scheme)
			return adaptertest.Fixture{Adapter: &Template{Client: cluster.Client, Provider: provider}, Cluster: cluster, Provider: faults}
		},
		Ops: []adaptertest.Op{
			adaptertest.ReadEmployer, adaptertest.CreateEmployer, adaptertest.UpdateEmployer, adaptertest.DeleteEmployer,
			adaptertest.ReadEmployees, adaptertest.CreateEmployees, adaptertest.UpdateEmployees, adaptertest.DeleteEmployees,
		},
		FaultDeadline: 20 * time.Millisecond,
	})
}

// TestTheRegistrationMatchesTheServicesOfTheAdapter shows that the manager, which reads
// registration.yaml, and the adapter agree about each Service.
func TestTheRegistrationMatchesTheServicesOfTheAdapter(t *testing.T) {
	adapter := &Template{}
	content, err := os.ReadFile("registration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var registered appsv1alpha1.TrafficAdapter
	if err := yaml.UnmarshalStrict(content, &registered); err != nil {
		t.Fatal(err)
	}
	if registered.Spec.Controller != adapter.GetControllerName() || registered.Spec.Lease.Name != leaseName {
		t.Errorf("registration.yaml has controller %s and lease %s", registered.Spec.Controller, registered.Spec.Lease.Name)
	}
	registration, err := trafficadapter.Parse(&registered)
	if err != nil {
		t.Fatal(err)
	}
	for _, control := range []string{"true", "false"} {
		for _, annotation := range []string{"true", "false"} {
			service := &corev1.Service{}
			service.Labels = map[string]string{appsv1alpha1.ControlLabelKey: control}
			service.Annotations = map[string]string{AnnotationKey: annotation}
			has := adapter.EmployerPredicates().Create(event.CreateEvent{Object: service})
			if got := registration.Matches(service); got != has {
				t.Errorf("control %s, annotation %s: the registration matches %t, the adapter has it %t", control, annotation, got, has)
			}
		}
	}
}
