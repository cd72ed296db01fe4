package demo_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/test/builders"
)

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
}

func addressed(b *builders.PodBuilder, ip string) client.Object {
	pod := b.Label("app", "web").Obj()
	pod.Namespace, pod.Status.PodIP = metav1.NamespaceDefault, ip
	return pod
}

func realServer(name, ip string, on bool, weight int) demo.DemoPodStatus {
	return demo.DemoPodStatus{EmployeeId: name, EmployeeName: name, EmployeeStatuses: resourceconsist.PodEmployeeStatuses{
		Ip: ip, LifecycleReady: on, ExtraStatus: demo.PodExtraStatus{TrafficOn: on, TrafficWeight: weight},
	}}
}

func TestExpectedEmployerAndEmployees(t *testing.T) {
	reader := fake.NewClientBuilder().WithObjects(
		addressed(builders.MakePod("serves").Available(), "10.0.0.1"),
		addressed(builders.MakePod("prepares").Ready().Preparing("x", "update"), "10.0.0.2"),
		addressed(builders.MakePod("starts"), ""),
	).Build()
	adapter := demo.New(reader, &demo.DemoResourceProviderClient{})

	employers, err := adapter.GetExpectedEmployer(t.Context(), service())
	if err != nil {
		t.Fatal(err)
	}
	wantEmployers := []resourceconsist.IEmployer{demo.DemoServiceStatus{
		EmployerId: "web", EmployerStatuses: demo.DemoServiceDetails{RemoteVIP: "demo-remote-VIP", RemoteVIPQPS: 100},
	}}
	if diff := cmp.Diff(wantEmployers, employers); diff != "" {
		t.Errorf("employer (-want +got):\n%s", diff)
	}
	pods, err := adapter.GetExpectedEmployee(t.Context(), service())
	if err != nil {
		t.Fatal(err)
	}
	want := []resourceconsist.IEmployee{realServer("prepares", "10.0.0.2", false, 0), realServer("serves", "10.0.0.1", true, 100)}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("employees (-want +got):\n%s", diff)
	}
	names, err := adapter.GetSelectedEmployeeNames(t.Context(), service())
	if diff := cmp.Diff([]string{"prepares", "serves", "starts"}, names); diff != "" || err != nil {
		t.Errorf("selected, %v (-want +got):\n%s", err, diff)
	}
}

func TestEmployeesAreEqualWhenNothingDiffers(t *testing.T) {
	one := realServer("a", "10.0.0.1", true, 100)
	for sentence, tc := range map[string]struct {
		other demo.DemoPodStatus
		want  bool
	}{
		"the same":                               {realServer("a", "10.0.0.1", true, 100), true},
		"another address":                        {realServer("a", "10.0.0.2", true, 100), false},
		"without traffic":                        {realServer("a", "10.0.0.1", false, 100), false},
		"another weight":                         {realServer("a", "10.0.0.1", true, 50), false},
		"another server":                         {realServer("b", "10.0.0.1", true, 100), false},
		"an ExtraStatus that cannot be compared": {demo.DemoPodStatus{EmployeeId: "a", EmployeeStatuses: resourceconsist.PodEmployeeStatuses{ExtraStatus: []int{1}}}, false},
	} {
		if got, err := one.EmployeeEqual(tc.other); got != tc.want || err != nil {
			t.Errorf("%s: EmployeeEqual = %v, %v, want %v", sentence, got, err, tc.want)
		}
	}
	if _, err := one.EmployeeEqual(nil); err == nil {
		t.Error("comparing with an employee of another adapter: no error")
	}
	if _, err := (demo.DemoServiceStatus{}).EmployerEqual(nil); err == nil {
		t.Error("comparing with an employer of another adapter: no error")
	}
}

// stubborn is a provider that rejects one real server.
type stubborn struct {
	demo.Provider
	name string
	err  error
}

func (s stubborn) PutRealServer(ctx context.Context, service, name string, server resourceconsist.PodEmployeeStatuses) error {
	if name == s.name {
		return s.err
	}
	return s.Provider.PutRealServer(ctx, service, name, server)
}

func TestAFailedRealServerDoesNotStopTheOthers(t *testing.T) {
	refused := errors.New("quota exceeded")
	provider := &demo.DemoResourceProviderClient{}
	adapter := demo.New(fake.NewClientBuilder().Build(), stubborn{provider, "b", refused})
	a, b, c := realServer("a", "10.0.0.1", true, 100), realServer("b", "10.0.0.2", true, 100), realServer("c", "10.0.0.3", true, 100)

	succeeded, failed, err := adapter.CreateEmployees(t.Context(), service(), []resourceconsist.IEmployee{a, b, c})
	if diff := cmp.Diff([][]resourceconsist.IEmployee{{a, c}, {b}}, [][]resourceconsist.IEmployee{succeeded, failed}); diff != "" {
		t.Errorf("succeeded and failed (-want +got):\n%s", diff)
	}
	if !errors.Is(err, refused) {
		t.Errorf("err = %v, want %v", err, refused)
	}
	there, err := provider.RealServers(t.Context(), "default/web")
	if err != nil || len(there) != 2 {
		t.Errorf("the provider has %v, %v, want a and c", there, err)
	}
}

func TestDeletedItemsAreRemovedFromTheProvider(t *testing.T) {
	provider := &demo.DemoResourceProviderClient{}
	adapter := demo.New(fake.NewClientBuilder().Build(), provider)
	ctx := t.Context()
	employers, err := adapter.GetExpectedEmployer(ctx, service())
	if err != nil {
		t.Fatal(err)
	}
	servers := []resourceconsist.IEmployee{realServer("a", "10.0.0.1", true, 100)}
	for range 2 { // every verb is safe to repeat
		for _, verb := range []func(context.Context, client.Object, []resourceconsist.IEmployer) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error){
			adapter.CreateEmployer, adapter.UpdateEmployer,
		} {
			if _, failed, err := verb(ctx, service(), employers); err != nil || len(failed) > 0 {
				t.Fatalf("failed: %v, %v", failed, err)
			}
		}
		if _, _, err := adapter.UpdateEmployees(ctx, service(), servers); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := adapter.GetCurrentEmployer(ctx, service()); err != nil || !cmp.Equal(there, employers) {
		t.Errorf("current employer: %v, %v", there, err)
	}
	if there, err := adapter.GetCurrentEmployee(ctx, service()); err != nil || !cmp.Equal(there, servers) {
		t.Errorf("current employees: %v, %v", there, err)
	}
	for range 2 {
		if _, failed, err := adapter.DeleteEmployees(ctx, service(), servers); err != nil || len(failed) > 0 {
			t.Fatalf("failed: %v, %v", failed, err)
		}
		if _, failed, err := adapter.DeleteEmployer(ctx, service(), employers); err != nil || len(failed) > 0 {
			t.Fatalf("failed: %v, %v", failed, err)
		}
	}
	employer, _ := adapter.GetCurrentEmployer(ctx, service())
	employees, _ := adapter.GetCurrentEmployee(ctx, service())
	if len(employer)+len(employees) > 0 {
		t.Errorf("left at the provider: %v, %v", employer, employees)
	}
}
