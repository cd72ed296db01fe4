package adaptertest

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// podsOf returns the pods that the Service "web" selects, by name.
func podsOf(t *testing.T, cluster *ServiceCluster) map[string]*corev1.Pod {
	t.Helper()
	selected, err := service.Selected(t.Context(), cluster.Client, cluster.Employer(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for _, pod := range selected {
		pods[pod.Name] = pod
	}
	return pods
}

func TestPodsHaveTheTrafficIntentOfTheirEmployees(t *testing.T) {
	cases := map[string]struct {
		employee Employee
		want     bool
	}{
		"serves":         {employee: Employee{Address: "192.0.2.1"}, want: true},
		"off":            {employee: Employee{Address: "192.0.2.1", Off: true}},
		"terminating":    {employee: Employee{Address: "192.0.2.1", Terminating: true}},
		"has no address": {employee: Employee{Off: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := NewServiceCluster(scheme.Scheme)
			tc.employee.Name = "web-0"
			cluster.Employ(t, "web", tc.employee)
			pod := podsOf(t, cluster)["web-0"]
			statuses, err := resourceconsist.GetCommonPodEmployeeStatus(pod)
			if err != nil {
				t.Fatal(err)
			}
			if statuses.LifecycleReady != tc.want || statuses.Ip != tc.employee.Address {
				t.Errorf("statuses: %+v, want the address %q and traffic: %v", statuses, tc.employee.Address, tc.want)
			}
			if got := pod.DeletionTimestamp != nil; got != tc.employee.Terminating {
				t.Errorf("terminating: %v, want %v", got, tc.employee.Terminating)
			}
		})
	}
}

func TestEmployReplacesTheEmployees(t *testing.T) {
	cluster := NewServiceCluster(scheme.Scheme)
	first := Employee{Name: "web-0", Address: "192.0.2.1"}
	cluster.Employ(t, "web", first, Employee{Name: "web-1", Address: "192.0.2.2", Terminating: true})
	cluster.Employ(t, "api", Employee{Name: "api-0", Address: "192.0.2.3"})
	cluster.Employ(t, "web", first)
	if pods := podsOf(t, cluster); len(pods) != 1 || pods["web-0"] == nil {
		t.Errorf("the service selects %v, want web-0 alone", pods)
	}
}

func TestAPodWithAChangedAddressHasAnotherUID(t *testing.T) {
	cluster := NewServiceCluster(scheme.Scheme)
	uid := func(employee Employee) string {
		employee.Name = "web-0"
		cluster.Employ(t, "web", employee)
		return string(podsOf(t, cluster)["web-0"].UID)
	}
	pending := uid(Employee{Off: true})
	running := uid(Employee{Address: "192.0.2.1"})
	off := uid(Employee{Address: "192.0.2.1", Off: true})
	moved := uid(Employee{Address: "192.0.2.2"})
	if pending != running || running != off {
		t.Errorf("UIDs of one pod: %q, %q, %q", pending, running, off)
	}
	if moved == off {
		t.Errorf("a pod with another address has the UID %q as well", moved)
	}
}

func TestADismissedEmployerIsTerminatingAndKeepsItsPods(t *testing.T) {
	cluster := NewServiceCluster(scheme.Scheme)
	cluster.Employ(t, "web", Employee{Name: "web-0", Address: "192.0.2.1"})
	cluster.Dismiss(t, "web")
	service := cluster.Employer(t, "web")
	if service.GetDeletionTimestamp() == nil || !slices.Contains(service.GetFinalizers(), resourceconsist.CleanFinalizer("web")) {
		t.Errorf("the service is not terminating: %+v", service)
	}
	if pods := podsOf(t, cluster); len(pods) != 1 {
		t.Errorf("the service selects %v, want web-0", pods)
	}
}

func TestWeightAndRevisionAnnotations(t *testing.T) {
	cluster := NewServiceCluster(scheme.Scheme)
	cluster.Employ(t, "web", Employee{Name: "web-0", Address: "192.0.2.1", Weight: 7}, Employee{Name: "web-1", Address: "192.0.2.2"})
	pods := podsOf(t, cluster)
	if got := PodWeight(pods["web-0"]); got != 7 {
		t.Errorf("weight: %d, want 7", got)
	}
	if got := PodWeight(pods["web-1"]); got != 100 {
		t.Errorf("weight of a pod that has none: %d, want 100", got)
	}
	revision := func(o client.Object) string { return o.GetAnnotations()[RevisionAnnotationKey] }
	before := revision(cluster.Employer(t, "web"))
	cluster.Change(t, "web")
	if after := revision(cluster.Employer(t, "web")); after == before {
		t.Errorf("the revision is still %q", after)
	}
}
