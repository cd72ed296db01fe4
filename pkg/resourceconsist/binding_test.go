package resourceconsist

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Adapters with one optional interface each.
type (
	nameless  struct{ *lb }
	queued    struct{ *lb }
	upstream  struct{ *lb }
	apart     struct{ *lb }
	recording struct{ *lb }
	watching  struct {
		*lb
		employer, employee client.Object
	}
)

func (nameless) GetControllerName() string { return "" }

func (queued) GetRateLimiter() workqueue.TypedRateLimiter[reconcile.Request] { return nil }
func (queued) GetMaxConcurrentReconciles() int                               { return 3 }

func (upstream) GetMaxConcurrent() int                       { return 7 }
func (upstream) FollowPodOpsLifeCycle() bool                 { return true }
func (upstream) NeedRecordLifecycleFinalizerCondition() bool { return true }

func (apart) FollowPodOpsLifeCycle() bool { return false }
func (apart) NeedRecordEmployees() bool   { return false }

func (recording) FollowPodOpsLifeCycle() bool                { return true }
func (recording) NeedRecordEmployees() bool                  { return true }
func (recording) NeedRecordExpectedFinalizerCondition() bool { return true }
func (recording) EmployeeSyncRequeueInterval() time.Duration { return 3 * time.Second }

func (w watching) NewEmployer() client.Object               { return w.employer }
func (w watching) NewEmployee() client.Object               { return w.employee }
func (watching) EmployerEventHandler() handler.EventHandler { return nil }
func (watching) EmployeeEventHandler() handler.EventHandler { return nil }
func (watching) EmployerPredicates() predicate.Funcs        { return predicate.Funcs{} }
func (watching) EmployeePredicates() predicate.Funcs        { return predicate.Funcs{} }

func TestDefaultsOfAnAdapter(t *testing.T) {
	b, err := bind(newLB(nil))
	if err != nil {
		t.Fatal(err)
	}
	if b.workers != 5 || !b.follow || b.recordEmployees || b.recordExpected || b.requeue != 0 || !b.employerIsService() {
		t.Errorf("binding %+v", b)
	}
	if b.manages(&corev1.Service{}) || !b.manages(web()) {
		t.Error("the label kusionstack.io/control: \"true\" must make a Service an employer")
	}
	service := web()
	service.Labels[appsv1alpha1.ControlLabelKey] = "yes"
	if b.manages(service) {
		t.Error("another value of the label must not make a Service an employer")
	}
	if first := b.rateLimiter.When(reconcile.Request{}); first != firstRetry {
		t.Errorf("first retry after %v", first)
	}
}

func TestOptionalInterfaces(t *testing.T) {
	for sentence, tc := range map[string]struct {
		adapter ReconcileAdapter
		holds   func(binding) bool
	}{
		"ReconcileOptions, with a nil limiter":      {queued{newLB(nil)}, func(b binding) bool { return b.workers == 3 && b.rateLimiter != nil }},
		"method names of KusionStack":               {upstream{newLB(nil)}, func(b binding) bool { return b.workers == 7 && b.follow && b.recordEmployees }},
		"an adapter that follows no lifecycle":      {apart{newLB(nil)}, func(b binding) bool { return !b.follow }},
		"records and a requeue interval":            {recording{newLB(nil)}, func(b binding) bool { return b.recordEmployees && b.recordExpected && b.requeue == 3*time.Second }},
		"another kind of employer without a filter": {watching{newLB(nil), &corev1.ConfigMap{}, &corev1.Pod{}}, func(b binding) bool { return !b.employerIsService() && b.manages(&corev1.ConfigMap{}) }},
	} {
		t.Run(sentence, func(t *testing.T) {
			b, err := bind(tc.adapter)
			if err != nil || !tc.holds(b) {
				t.Errorf("error %v, binding %+v", err, b)
			}
		})
	}
}

func TestAnAdapterThatCannotWorkIsRejected(t *testing.T) {
	var noService *corev1.Service
	for want, adapter := range map[string]ReconcileAdapter{
		"it is nil":                     nil,
		"GetControllerName":             nameless{newLB(nil)},
		"NewEmployer returns nil":       watching{newLB(nil), noService, &corev1.Pod{}},
		"NewEmployee returns nil":       watching{newLB(nil), &corev1.Service{}, nil},
		"needs employees that are pods": watching{newLB(nil), &corev1.Service{}, &corev1.Node{}},
	} {
		if _, err := bind(adapter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestOptionsThatCannotWorkAreRejected(t *testing.T) {
	for _, option := range []Option{WithTimeout(0), WithResync(-1), WithRateLimit(0, 1), WithRateLimit(1, 0)} {
		s := defaults()
		option(&s)
		if _, err := newReconciler(nil, nil, nil, newLB(nil), s); err == nil || !strings.Contains(err.Error(), "above 0") {
			t.Errorf("error %v", err)
		}
	}
}

func TestRecordsAreWrittenBeforeTheProviderIsCalled(t *testing.T) {
	w := newCluster(t, func(l *lb) ReconcileAdapter { return recording{l} }, workload(2)...)
	before := ""
	w.lb.before = func() { before = w.service().Annotations[EmployeesRecordedAnnotationKey] }
	w.settles()
	if before != "p000,p001" {
		t.Errorf("recorded when the provider was called: %q", before)
	}
	if got := w.service().Annotations[EmployeesExpectedAnnotationKey]; got != "p000,p001" {
		t.Errorf("recorded as expecting: %q", got)
	}
	w.becomes(webPod("p000").Available().Label("app", "other"))
	w.settles()
	w.settles()
	if got := w.service().Annotations; got[EmployeesRecordedAnnotationKey] != "p001" || got[EmployeesExpectedAnnotationKey] != "p001" {
		t.Errorf("after p000 is no longer selected: %v", got)
	}
}

// TestARecordedPodThatIsNotInTheCacheLosesItsFinalizer covers a crash between record and
// finalizer, and a pod that left every index meanwhile.
func TestARecordedPodThatIsNotInTheCacheLosesItsFinalizer(t *testing.T) {
	service := web()
	service.Annotations = map[string]string{EmployeesRecordedAnnotationKey: "lost,gone"}
	pod := webPod("lost").Uncontrolled().Ready().Finalizer(GenerateLifecycleFinalizer("web")).Obj()
	pod.Labels = nil
	w := newCluster(t, func(l *lb) ReconcileAdapter { return recording{l} }, service, pod)
	w.r.client = blind{w.client}
	w.settles()
	if w.protected("lost") {
		t.Error("the finalizer stays on the pod")
	}
}

// blind is a cache that holds no pods.
type blind struct{ client.Client }

func (b blind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods {
		return nil
	}
	return b.Client.List(ctx, list, options...)
}

func (b blind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, pod := object.(*corev1.Pod); pod {
		return notFound(key.Name)
	}
	return b.Client.Get(ctx, key, object, options...)
}

type noting struct {
	*lb
	statuses []CUDEmployeeResults
	errors   []error
}

func (n *noting) RecordStatuses(_ context.Context, _ client.Object, _ CUDEmployerResults, results CUDEmployeeResults) error {
	n.statuses = append(n.statuses, results)
	return nil
}

func (n *noting) RecordErrorConditions(_ context.Context, _ client.Object, err error) error {
	n.errors = append(n.errors, err)
	return nil
}

func TestAnAdapterReceivesTheResultsOfItsVerbs(t *testing.T) {
	n := &noting{}
	w := newCluster(t, func(l *lb) ReconcileAdapter { n.lb = l; return n }, workload(2)...)
	w.lb.fail["CreateEmployees p001-uid"] = errQuota
	w.settles()
	if len(n.statuses) != 0 || len(n.errors) != 1 || !strings.Contains(n.errors[0].Error(), "p001: CreateEmployees: quota exceeded") {
		t.Errorf("statuses %v, errors %v", n.statuses, n.errors)
	}
	clear(w.lb.fail)
	w.clock.Step(lastRetry)
	w.settles()
	if len(n.statuses) != 1 || len(n.statuses[0].SuccCreated) != 1 || len(n.statuses[0].Unchanged) != 1 {
		t.Errorf("statuses %+v, errors %v", n.statuses, n.errors)
	}
}
