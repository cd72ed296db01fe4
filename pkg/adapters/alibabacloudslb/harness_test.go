package alibabacloudslb_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	slb "github.com/podops-dev/podops/pkg/adapters/alibabacloudslb"
	"github.com/podops-dev/podops/pkg/adapters/alibabacloudslb/internal/slbtest"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/test/builders"
)

const serviceUID = "5e2f1c1e-0000-4000-8000-00000000cafe"

// harness is a Service with its pods, an adapter, and a load balancer.
type harness struct {
	t       testing.TB
	server  *slbtest.Server
	client  client.Client
	adapter *slb.Adapter
}

func newHarness(t testing.TB, objects ...client.Object) *harness {
	t.Helper()
	server := slbtest.New(t)
	api, err := slb.NewClient(config(server))
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithObjects(objects...).Build()
	adapter, err := slb.New(c, api, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &harness{t: t, server: server, client: c, adapter: adapter}
}

// service returns the Service web, which selects app: web.
func service(changes ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: serviceUID,
			Labels: map[string]string{"kusionstack.io/control": "true"}, Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func annotated(pairs ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func managed(groups string) func(*corev1.Service) {
	return annotated(slb.BackendsAnnotationKey, slb.BackendsManaged, slb.GroupsAnnotationKey, groups)
}

func ofLoadBalancer(id string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels[slb.LoadBalancerIDLabelKey] = id }
}

// pod returns pod n of the Service, with address 10.0.0.n on interface eni-n.
func pod(n int, changes ...func(*builders.PodBuilder)) *corev1.Pod {
	b := builders.MakePod(podName(n)).UID(types.UID(podUID(n))).Label("app", "web").
		Annotation(slb.ServerIDAnnotationKey, fmt.Sprintf("eni-%d", n)).Phase(corev1.PodRunning).Gate(true).Ready()
	for _, change := range changes {
		change(b)
	}
	p := b.Obj()
	p.Status.PodIP = address(n)
	return p
}

func preparing(b *builders.PodBuilder) { b.Preparing("roll", "update").Gate(false) }

func terminating(b *builders.PodBuilder) { b.Terminating(builders.Epoch).Finalizer("test/keep") }

func podName(n int) string { return fmt.Sprintf("web-%d", n) }

func podUID(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func address(n int) string { return fmt.Sprintf("10.0.%d.%d", n/250, n%250) }

// description returns the description of the backends of pod n.
func description(n int) string {
	return strings.Join([]string{"podops", hashed(serviceUID), hashed(podUID(n)), podName(n)}, "/")
}

func hashed(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:8])
}

// backend returns the backend that the adapter registers for pod n.
func backend(n, port, weight int) slbtest.Backend {
	return slbtest.Backend{
		ServerID: fmt.Sprintf("eni-%d", n), ServerIP: address(n), Type: "eni", Port: port, Weight: weight, Description: description(n),
	}
}

// foreign returns a backend without a description of the adapter.
func foreign(n, port int) slbtest.Backend {
	return slbtest.Backend{ServerID: fmt.Sprintf("eni-%d", n), ServerIP: address(n), Type: "eni", Port: port, Weight: 100, Description: "by hand"}
}

func (w *harness) service() *corev1.Service {
	w.t.Helper()
	var s corev1.Service
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: "default", Name: "web"}, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

// change changes the Service.
func (w *harness) change(changes ...func(*corev1.Service)) {
	w.t.Helper()
	s := w.service()
	for _, change := range changes {
		change(s)
	}
	if err := w.client.Update(context.Background(), s); err != nil {
		w.t.Fatal(err)
	}
}

// put creates or replaces a pod.
func (w *harness) put(p *corev1.Pod) {
	w.t.Helper()
	w.drop(p.Name)
	terminating := p.DeletionTimestamp != nil
	if err := w.client.Create(context.Background(), p); err != nil {
		w.t.Fatal(err)
	}
	if !terminating {
		return
	}
	// The fake API server, as the real one, rejects the creation of a terminating pod.
	if err := w.client.Delete(context.Background(), p); err != nil {
		w.t.Fatal(err)
	}
}

// drop deletes a pod with its finalizers.
func (w *harness) drop(name string) {
	w.t.Helper()
	var p corev1.Pod
	err := w.client.Get(context.Background(), types.NamespacedName{Namespace: "default", Name: name}, &p)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return
	}
	p.Finalizers = nil
	if err := w.client.Update(context.Background(), &p); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Delete(context.Background(), &p); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

// diff returns the plan of the framework.
func (w *harness) diff() (plan.Diff[resourceconsist.IEmployee], error) {
	w.t.Helper()
	s := w.service()
	expected, err := w.adapter.GetExpectedEmployee(w.t.Context(), s)
	if err != nil {
		return plan.Diff[resourceconsist.IEmployee]{}, err
	}
	current, err := w.adapter.GetCurrentEmployee(w.t.Context(), s)
	if err != nil {
		return plan.Diff[resourceconsist.IEmployee]{}, err
	}
	equal := func(expected, current resourceconsist.IEmployee) (bool, error) {
		return expected.EmployeeEqual(current)
	}
	return plan.Between(items(expected), items(current), equal), nil
}

func items(employees []resourceconsist.IEmployee) []plan.Item[resourceconsist.IEmployee] {
	var all []plan.Item[resourceconsist.IEmployee]
	for _, e := range employees {
		item := plan.Item[resourceconsist.IEmployee]{ID: e.GetEmployeeId(), Name: e.GetEmployeeName(), Intent: plan.IntentOff, Value: e}
		if e.GetEmployeeStatuses().(resourceconsist.PodEmployeeStatuses).LifecycleReady {
			item.Intent = plan.IntentOn
		}
		all = append(all, item)
	}
	return all
}

// reconcile carries out the plan once with the adapter, and returns the names of the failed
// pods.
func (w *harness) reconcile() (failed []string, err error) {
	w.t.Helper()
	diff, err := w.diff()
	if err != nil {
		return nil, err
	}
	s := w.service()
	type do func(context.Context, client.Object, []resourceconsist.IEmployee) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error)
	var all error
	for _, step := range []struct {
		do    do
		items []plan.Item[resourceconsist.IEmployee]
	}{
		{w.adapter.UpdateEmployees, diff.Off},
		{w.adapter.DeleteEmployees, diff.Delete},
		{w.adapter.CreateEmployees, diff.Create},
		{w.adapter.UpdateEmployees, diff.Update},
	} {
		var employees []resourceconsist.IEmployee
		for _, item := range step.items {
			employees = append(employees, item.Value)
		}
		good, bad, err := step.do(w.t.Context(), s, employees)
		if len(good)+len(bad) != len(employees) {
			w.t.Errorf("%d succeeded and %d failed of %d", len(good), len(bad), len(employees))
		}
		if (err == nil) != (len(bad) == 0) {
			w.t.Errorf("%d failed with error %v", len(bad), err)
		}
		for _, e := range bad {
			failed = append(failed, e.GetEmployeeName())
		}
		all = errors.Join(all, err)
	}
	slices.Sort(failed)
	return failed, all
}

// mustReconcile is reconcile without failures.
func (w *harness) mustReconcile() {
	w.t.Helper()
	if failed, err := w.reconcile(); err != nil || len(failed) > 0 {
		w.t.Fatalf("failed: %v, error: %v", failed, err)
	}
}

// traffic returns the framework's state of each pod's traffic from the adapter's results:
// On, Off or neither.
func (w *harness) traffic(names ...string) map[string]plan.State {
	w.t.Helper()
	diff, err := w.diff()
	if err != nil {
		w.t.Fatal(err)
	}
	traffic, states := plan.ClassifyTraffic(diff), map[string]plan.State{}
	for _, name := range names {
		states[name] = traffic.Of(name)
	}
	return states
}

func (w *harness) wantTraffic(sentence string, want map[string]plan.State) {
	w.t.Helper()
	got := w.traffic(slices.Collect(maps.Keys(want))...)
	for name, state := range want {
		if got[name] != state {
			w.t.Errorf("%s: traffic of %s is %v, want %v", sentence, name, got[name], state)
		}
	}
}

// calls returns how often each action was carried out.
func (w *harness) calls() map[string]int {
	counts := map[string]int{}
	for _, call := range w.server.Calls() {
		counts[call.Action]++
	}
	return counts
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
