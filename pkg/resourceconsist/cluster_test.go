package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// vip and server are the items of the test provider for an employer and an employee.
type vip struct{ id string }

func (v vip) GetEmployerId() string                 { return v.id } //nolint:staticcheck // the name is the interface's
func (v vip) GetEmployerStatuses() interface{}      { return nil }
func (v vip) EmployerEqual(IEmployer) (bool, error) { return true, nil }
func (s server) GetEmployeeId() string              { return s.id } //nolint:staticcheck // the name is the interface's
func (s server) GetEmployeeName() string            { return s.name }
func (s server) GetEmployeeStatuses() interface{}   { return PodEmployeeStatuses{LifecycleReady: s.on} }
func (s server) EmployeeEqual(c IEmployee) (bool, error) {
	other, ok := c.(server)
	if !ok || s.name == "incomparable" {
		return false, errors.New("cannot compare")
	}
	return s.on == other.on, nil
}

type server struct {
	id, name string
	on       bool
}

// lb is an adapter whose provider is in memory. Every change is accepted, and takes effect
// at once.
type lb struct {
	mu      sync.Mutex
	client  client.Client
	servers map[string]server
	vips    map[string]bool

	// fail holds the errors of calls, by "<verb>" or "<verb> <id>"; a batch fails only in
	// part unless whole is set.
	fail  map[string]error
	whole bool

	before func()              // called before a change
	after  func(server) server // returns the server that a change results in

	calls []string // "<verb> <ids>", in their order
	hang  map[string]chan struct{}
	peak  int // employees in the largest call
}

func newLB(c client.Client) *lb {
	return &lb{client: c, servers: map[string]server{}, vips: map[string]bool{}, fail: map[string]error{}, hang: map[string]chan struct{}{}}
}

func (l *lb) GetControllerName() string { return "lb" }

func (l *lb) pods(ctx context.Context, employer client.Object) ([]corev1.Pod, error) {
	service, ok := employer.(*corev1.Service)
	if !ok || len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	var pods corev1.PodList
	err := l.client.List(ctx, &pods, client.InNamespace(employer.GetNamespace()), client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(service.Spec.Selector)})
	return pods.Items, err
}

func (l *lb) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	if err := l.called("GetSelectedEmployeeNames"); err != nil {
		return nil, err
	}
	pods, err := l.pods(ctx, employer)
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names, err
}

func (l *lb) called(verb string) error {
	l.mu.Lock()
	hang := l.hang[verb]
	defer l.mu.Unlock()
	if hang != nil {
		l.mu.Unlock()
		<-hang
		l.mu.Lock()
	}
	if l.fail[verb] != nil && strings.Contains(l.fail[verb].Error(), "panic") {
		panic("injected")
	}
	return l.fail[verb]
}

func (l *lb) GetExpectedEmployer(_ context.Context, employer client.Object) ([]IEmployer, error) {
	return []IEmployer{vip{employer.GetName()}}, l.called("GetExpectedEmployer")
}

func (l *lb) GetCurrentEmployer(context.Context, client.Object) ([]IEmployer, error) {
	var all []IEmployer
	for id := range l.vips {
		all = append(all, vip{id})
	}
	return all, l.called("GetCurrentEmployer")
}

func (l *lb) CreateEmployer(_ context.Context, _ client.Object, items []IEmployer) ([]IEmployer, []IEmployer, error) {
	l.note("CreateEmployer", items[0].GetEmployerId())
	if err := l.called("CreateEmployer"); err != nil {
		return nil, items, err
	}
	l.vips[items[0].GetEmployerId()] = true
	return items, nil, nil
}

func (l *lb) UpdateEmployer(_ context.Context, _ client.Object, items []IEmployer) ([]IEmployer, []IEmployer, error) {
	return items, nil, nil
}

func (l *lb) DeleteEmployer(_ context.Context, _ client.Object, items []IEmployer) ([]IEmployer, []IEmployer, error) {
	l.note("DeleteEmployer", items[0].GetEmployerId())
	if err := l.called("DeleteEmployer"); err != nil {
		return nil, items, err
	}
	delete(l.vips, items[0].GetEmployerId())
	return items, nil, nil
}

func (l *lb) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]IEmployee, error) {
	if err := l.called("GetExpectedEmployee"); err != nil {
		return nil, err
	}
	pods, err := l.pods(ctx, employer)
	var all []IEmployee
	for i := range pods {
		statuses, err := GetCommonPodEmployeeStatus(&pods[i])
		if err != nil {
			return nil, err
		}
		all = append(all, server{id: string(pods[i].UID), name: pods[i].Name, on: statuses.LifecycleReady})
	}
	return all, err
}

func (l *lb) GetCurrentEmployee(context.Context, client.Object) ([]IEmployee, error) {
	if err := l.called("GetCurrentEmployee"); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []IEmployee
	for _, s := range l.servers {
		all = append(all, s)
	}
	return all, nil
}

func (l *lb) CreateEmployees(_ context.Context, _ client.Object, items []IEmployee) ([]IEmployee, []IEmployee, error) {
	return l.change("CreateEmployees", items, l.put)
}

func (l *lb) UpdateEmployees(_ context.Context, _ client.Object, items []IEmployee) ([]IEmployee, []IEmployee, error) {
	return l.change("UpdateEmployees", items, l.put)
}

func (l *lb) DeleteEmployees(_ context.Context, _ client.Object, items []IEmployee) ([]IEmployee, []IEmployee, error) {
	return l.change("DeleteEmployees", items, func(s server) { delete(l.servers, s.id) })
}

// holdUp makes the calls of a verb hang until the returned function is called.
func (l *lb) holdUp(verb string) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.hang[verb] = held
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hang, verb)
		close(held)
	}
}

func (l *lb) put(s server) {
	if l.after != nil {
		s = l.after(s)
	}
	l.servers[s.id] = s
}

func (l *lb) note(verb, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, verb+" "+id)
}

func (l *lb) change(verb string, items []IEmployee, do func(server)) (succeeded, failed []IEmployee, err error) {
	if err := l.called(verb); err != nil {
		return nil, nil, err
	}
	if l.before != nil {
		l.before()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.GetEmployeeId()
		if one := l.fail[verb+" "+ids[i]]; one != nil {
			err = one
			failed = append(failed, item)
		}
	}
	l.peak = max(l.peak, len(items))
	l.calls = append(l.calls, verb+" "+strings.Join(ids, ","))
	if err != nil && l.whole {
		return nil, nil, err
	}
	for _, item := range items {
		if s, ok := item.(server); ok && !slices.Contains(failed, item) {
			do(s)
			succeeded = append(succeeded, item)
		}
	}
	return succeeded, failed, err
}

func notFound(name string) error {
	return apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// cluster is a reconciler on a fake API server.
type cluster struct {
	t        *testing.T
	client   client.Client
	lb       *lb
	r        *Reconciler
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	seen     []string // events

	// broken holds the errors of patches, by object name.
	broken map[string]error
}

func newCluster(t *testing.T, adapt func(*lb) ReconcileAdapter, objects ...client.Object) *cluster {
	t.Helper()
	w := &cluster{t: t, clock: clocktesting.NewFakeClock(builders.Epoch), recorder: events.NewFakeRecorder(1000), registry: prometheus.NewRegistry(), broken: map[string]error{}}
	w.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "resourceconsist/lb", indexByMarks).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := w.broken[object.GetName()]; err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		}}).Build()
	w.lb = newLB(w.client)
	var adapter ReconcileAdapter = w.lb
	if adapt != nil {
		adapter = adapt(w.lb)
	}
	s := defaults()
	s.registry, s.clock, s.timeout = w.registry, w.clock, 5*time.Second
	// Failed calls are retried by the next reconcile only, unless a test configures more
	// tries.
	s.qps, s.burst, s.tries = 1e6, 1e6, 1
	var err error
	if w.r, err = newReconciler(w.client, w.client, clientgoscheme.Scheme, adapter, s); err != nil {
		t.Fatal(err)
	}
	w.r.recorder = w.recorder
	return w
}

func webKey() types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: "web"} }

func (w *cluster) reconcile() (reconcile.Result, error) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: webKey()})
	for {
		select {
		case e := <-w.recorder.Events:
			w.seen = append(w.seen, e)
			continue
		default:
		}
		return result, err
	}
}

// settles reconciles once and expects no error.
func (w *cluster) settles() reconcile.Result {
	w.t.Helper()
	result, err := w.reconcile()
	if err != nil {
		w.t.Fatalf("Reconcile: %v", err)
	}
	return result
}

// pod reads a pod; nil when it does not exist.
func (w *cluster) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: "default", Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// service reads the employer; nil when it does not exist.
func (w *cluster) service() *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{}
	err := w.client.Get(w.t.Context(), webKey(), service)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return service
}

// becomes replaces a pod by the result of a builder and keeps its finalizers and
// annotations.
func (w *cluster) becomes(b *builders.PodBuilder) {
	w.t.Helper()
	pod := b.Obj()
	stored := w.pod(pod.Name)
	pod.ResourceVersion, pod.Finalizers, pod.Annotations = stored.ResourceVersion, stored.Finalizers, stored.Annotations
	status := pod.Status
	if err := w.client.Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	pod.Status = status
	if err := w.client.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *cluster) deletes(object client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *cluster) updates(object client.Object) {
	w.t.Helper()
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// protected reports whether the pod carries the finalizer of web, expects whether its
// annotation names it.
func (w *cluster) protected(name string) bool {
	pod := w.pod(name)
	return pod != nil && slices.Contains(pod.Finalizers, GenerateLifecycleFinalizer("web"))
}

func (w *cluster) expects(name string) bool {
	pod := w.pod(name)
	if pod == nil {
		return false
	}
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	return err == nil && conditions.ExpectedFinalizers["Service/default/web"] == GenerateLifecycleFinalizer("web")
}

// wantEvent fails unless an event of a reason contains a text.
func (w *cluster) wantEvent(reason, text string) {
	w.t.Helper()
	for _, e := range w.seen {
		if strings.Contains(e, reason) && strings.Contains(e, text) {
			return
		}
	}
	w.t.Errorf("no event %s with %q; got:\n%s", reason, text, strings.Join(w.seen, "\n"))
}

// errorMetrics returns the metrics by controller/namespace/employer/employee.
func (w *cluster) errorMetrics() map[string]float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	metrics := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			metrics[strings.Join([]string{labels["controller"], labels["namespace"], labels["employer"], labels["employee"]}, "/")] = metric.GetGauge().GetValue()
		}
	}
	return metrics
}

// web returns the employer: a Service that selects app=web.
func web() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-service", Labels: map[string]string{appsv1alpha1.ControlLabelKey: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
}

// consistent returns the condition of the employer.
func (w *cluster) consistent() metav1.Condition {
	w.t.Helper()
	condition := meta.FindStatusCondition(w.service().Status.Conditions, ConditionConsistent)
	if condition == nil {
		return metav1.Condition{}
	}
	return *condition
}

// webPod returns the builder of a pod that web selects.
func webPod(name string) *builders.PodBuilder { return builders.MakePod(name).Label("app", "web") }

// workload returns web and n available pods, named p000 and on.
func workload(n int) []client.Object {
	objects := []client.Object{web()}
	for i := range n {
		objects = append(objects, webPod(fmt.Sprintf("p%03d", i)).Available().Obj())
	}
	return objects
}
