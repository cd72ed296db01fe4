package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

var errQuota = errors.New("quota exceeded")

func TestAPodHasTheFinalizerWhileItTakesTraffic(t *testing.T) {
	w := newCluster(t, nil, web(), webPod("a").Gate(true).Unready(builders.Epoch).Obj())

	w.settles()
	if !w.expects("a") || w.protected("a") {
		t.Fatal("a pod that is not ready must expect the finalizer, and must not have it")
	}
	w.becomes(webPod("a").Available())
	w.settles()
	if !w.protected("a") || !w.lb.servers["a-uid"].on {
		t.Fatal("traffic and the finalizer must be on")
	}
	w.becomes(webPod("a").Available().Preparing("x", "update"))
	w.settles()
	if w.protected("a") || w.lb.servers["a-uid"].on || !w.expects("a") {
		t.Fatal("a preparing pod must lose its traffic and then the finalizer, and must keep expecting it")
	}
	w.becomes(webPod("a").Gate(true).Ready().Complete("x", "update"))
	w.settles()
	if !w.protected("a") || !w.lb.servers["a-uid"].on {
		t.Fatal("a completed pod must get back its traffic and then the finalizer")
	}
}

func TestTheCleanFinalizerIsWrittenBeforeAnyProviderCall(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.broken["web"] = errors.New("no rights")
	if _, err := w.reconcile(); err == nil || len(w.lb.calls) > 0 {
		t.Fatalf("error %v and calls %v, want an error and no call: without the clean finalizer nothing cleans up", err, w.lb.calls)
	}
	w.wantEvent(EventEnsureCleanFinalizerFailed, "no rights")
	delete(w.broken, "web")
	w.settles()
	service := w.service()
	if !slices.Contains(service.Finalizers, "resource-consist.kusionstack.io/clean-web") || service.Annotations[ControllerAnnotationKey] != "lb" {
		t.Errorf("finalizers %v, annotations %v", service.Finalizers, service.Annotations)
	}
}

func TestTrafficGoesOffFirst(t *testing.T) {
	w := newCluster(t, nil, workload(3)...)
	w.lb.servers["unattributed"] = server{id: "unattributed", name: "gone", on: true}
	w.lb.servers["p001-uid"] = server{id: "p001-uid", name: "p001", on: true}
	w.lb.servers["p002-uid"] = server{id: "p002-uid", name: "p002", on: false}
	w.becomes(webPod("p001").Available().Preparing("x", "update"))
	w.settles()
	want := []string{"UpdateEmployees p001-uid", "DeleteEmployees unattributed", "CreateEmployer web", "CreateEmployees p000-uid", "UpdateEmployees p002-uid"}
	if diff := cmp.Diff(want, w.lb.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAFailedEmployeeDoesNotStopTheOthers(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("the adapter fails whole batches: %v", whole), func(t *testing.T) {
			w := newCluster(t, nil, workload(200)...)
			w.lb.whole = whole
			w.lb.fail["CreateEmployees p007-uid"] = errQuota
			for range 3 {
				result := w.settles()
				w.clock.Step(result.RequeueAfter)
			}
			for i := range 200 {
				name := fmt.Sprintf("p%03d", i)
				if w.protected(name) != (i != 7) {
					t.Errorf("%s protected: %v", name, w.protected(name))
				}
			}
			w.wantEvent(EventSyncEmployeesFailed, "p007: CreateEmployees: quota exceeded")
			if w.lb.peak > defaultBatch {
				t.Errorf("a call has %d employees, at most %d are allowed", w.lb.peak, defaultBatch)
			}
			if got := w.consistent(); got.Status != metav1.ConditionFalse || got.Reason != EventSyncEmployeesFailed || !strings.Contains(got.Message, "p007: CreateEmployees: quota exceeded") {
				t.Errorf("condition %+v", got)
			}
			if got := w.errorMetrics(); len(got) != 1 || got["lb/default/web/p007"] < 1 {
				t.Errorf("metrics %v, want one, of p007", got)
			}
			delete(w.lb.fail, "CreateEmployees p007-uid")
			w.clock.Step(lastRetry)
			w.settles()
			if !w.protected("p007") {
				t.Error("p007 recovers")
			}
			if got := w.consistent(); got.Status != metav1.ConditionTrue || got.Message != "" {
				t.Errorf("condition %+v after the employee recovered", got)
			}
			if got := w.errorMetrics(); len(got) != 0 {
				t.Errorf("metrics %v after the employee recovered", got)
			}
		})
	}
}

func TestAFailedDeleteKeepsTheFinalizer(t *testing.T) {
	w := newCluster(t, nil, workload(2)...)
	w.settles()
	w.lb.fail["DeleteEmployees p000-uid"] = errQuota
	for _, name := range []string{"p000", "p001"} {
		w.becomes(webPod(name).Available().Label("app", "other"))
	}
	w.settles()
	if !w.protected("p000") || !w.expects("p000") {
		t.Error("p000 may still have traffic and must keep its finalizer")
	}
	if w.protected("p001") || w.expects("p001") {
		t.Error("p001 is no longer selected and must lose finalizer and expectation")
	}
}

func TestEveryVerbFailsAlone(t *testing.T) {
	for verb, reason := range map[string]string{
		"GetExpectedEmployer": EventGetExpectedEmployerFailed, "GetCurrentEmployer": EventGetCurrentEmployerFailed,
		"GetExpectedEmployee": EventGetExpectedEmployeesFailed, "GetCurrentEmployee": EventGetCurrentEmployeesFailed,
		"GetSelectedEmployeeNames": EventEnsureExpectedFailed,
		"CreateEmployer":           EventSyncEmployerFailed, "CreateEmployees": EventSyncEmployeesFailed,
		"UpdateEmployees": EventSyncEmployeesFailed,
	} {
		t.Run(verb, func(t *testing.T) {
			for _, err := range []error{errQuota, errors.New("panic")} {
				w := newCluster(t, nil, workload(2)...)
				w.lb.servers["p001-uid"] = server{id: "p001-uid", name: "p001"}
				w.lb.fail[verb] = err
				_, _ = w.reconcile()
				w.wantEvent(reason, verb)
				employees := verb == "GetExpectedEmployee" || verb == "GetCurrentEmployee" || verb == "CreateEmployees" || verb == "GetSelectedEmployeeNames"
				if !employees && !w.protected("p000") {
					t.Error("p000 does not depend on the verb, and must have the finalizer")
				}
				if verb == "CreateEmployees" && !w.protected("p001") {
					t.Error("p001 exists at the provider, and must have the finalizer")
				}
				delete(w.lb.fail, verb)
				w.clock.Step(lastRetry)
				w.settles()
				if !w.protected("p000") || !w.protected("p001") || !w.lb.vips["web"] {
					t.Error("every item must exist once the verb works again")
				}
			}
		})
	}
}

func TestADeletedEmployerLeavesNothing(t *testing.T) {
	w := newCluster(t, nil, workload(3)...)
	w.settles()
	w.lb.fail["DeleteEmployees p001-uid"] = errQuota
	w.deletes(w.service())
	result := w.settles()
	if w.service() == nil || !w.lb.vips["web"] {
		t.Fatal("the employer and its address must stay while one of its employees does")
	}
	if w.protected("p000") || !w.protected("p001") || w.protected("p002") {
		t.Error("two pods must lose the finalizer, and the pod that may have traffic must keep it")
	}
	delete(w.lb.fail, "DeleteEmployees p001-uid")
	w.clock.Step(max(result.RequeueAfter, lastRetry))
	w.settles()
	if w.service() != nil || len(w.lb.vips)+len(w.lb.servers) > 0 || w.protected("p001") || w.expects("p001") {
		t.Errorf("left: service %v, vips %v, servers %v, p001 %v", w.service(), w.lb.vips, w.lb.servers, w.pod("p001").Finalizers)
	}
	w.wantEvent(EventCleanSucceed, "")
}

func TestAnEmployerThatLeavesPodOpsIsCleanedUp(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	service := w.service()
	delete(service.Labels, appsv1alpha1.ControlLabelKey)
	w.updates(service)
	w.settles()
	service = w.service()
	if w.consistent().Type != "" || len(service.Finalizers) > 0 || len(service.Annotations) > 0 || w.protected("p000") || w.expects("p000") || len(w.lb.servers) > 0 {
		t.Errorf("left: %v %v %v", service.Finalizers, service.Annotations, w.lb.servers)
	}
}

func TestPodsOfAnEmployerThatWasRemovedLoseTheirFinalizer(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	service := w.service()
	service.Finalizers = nil
	w.updates(service)
	w.deletes(service)
	w.settles()
	if w.protected("p000") || w.expects("p000") {
		t.Error("the pod keeps a finalizer that no employer can remove")
	}
}

func TestAnEmployerBelongsToOneController(t *testing.T) {
	service := web()
	service.Annotations = map[string]string{ControllerAnnotationKey: "another"}
	w := newCluster(t, nil, service, webPod("a").Available().Obj())
	if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), `"another"`) || len(w.lb.calls) > 0 {
		t.Errorf("error %v, calls %v", err, w.lb.calls)
	}
}

func TestATerminatingPodLosesTheFinalizerWhenItsTrafficIsOff(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	w.deletes(w.pod("p000"))
	w.lb.fail["UpdateEmployees"] = errQuota
	w.settles()
	if !w.protected("p000") {
		t.Fatal("the pod may still have traffic and must keep the finalizer")
	}
	delete(w.lb.fail, "UpdateEmployees")
	w.clock.Step(lastRetry)
	w.settles()
	if w.pod("p000") != nil {
		t.Error("the pod must lose the finalizer")
	}
	w.settles()
	if len(w.lb.servers) > 0 {
		t.Error("a deleted pod must be removed from the provider")
	}
}

func TestAFinalizerThatComesTooLateIsNoError(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	stripped := w.pod("p000")
	stripped.Finalizers = nil
	w.updates(stripped)
	w.broken["p000"] = apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p000", field.ErrorList{
		field.Forbidden(field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted"),
	})
	w.settles()
	w.broken["p000"] = apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p000", field.ErrorList{field.Invalid(field.NewPath("spec"), 1, "is wrong")})
	if _, err := w.reconcile(); err == nil {
		t.Error("another Invalid status must be an error")
	}
}

func TestAFinalizerThatTwoEmployersShareBelongsToTheFirst(t *testing.T) {
	theirs := GenerateLifecycleFinalizer("web")
	w := newCluster(t, nil, web(), webPod("a").Available().Expect("Gateway/default/web", theirs).Finalizer(theirs).Obj(), webPod("b").Available().Obj())
	_, err := w.reconcile()
	if err == nil {
		t.Error("a collision must be an error")
	}
	w.wantEvent(EventEnsureExpectedFailed, "on pods a")
	if w.expects("a") {
		t.Error("the first employer must have the finalizer alone")
	}
	if !w.protected("b") {
		t.Error("no other employer selects b, so it must have the finalizer")
	}
	w.becomes(webPod("a").Available().Preparing("x", "update"))
	_, _ = w.reconcile()
	if !w.protected("a") {
		t.Error("the finalizer of another employer must stay")
	}
}

func TestAnUnreadableAnnotationIsNotChanged(t *testing.T) {
	for _, value := range []string{"{", strings.Repeat("x", 300<<10), `{"expectedFinalizers":{"Service/default/web":""}}`} {
		w := newCluster(t, nil, web(), webPod("a").Available().Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, value).Obj())
		w.settles()
		if w.pod("a").Annotations[appsv1alpha1.AvailableConditionsAnnotationKey] != value || w.protected("a") {
			t.Errorf("pod was changed: %v", w.pod("a").Finalizers)
		}
	}
	nothing := newCluster(t, nil, web(), webPod("a").Available().Annotation(appsv1alpha1.AvailableConditionsAnnotationKey, `{"expectedFinalizers":null}`).Obj())
	nothing.settles()
	if !nothing.protected("a") || !nothing.expects("a") {
		t.Error("a null map must count as an empty one")
	}
}

func TestAnEmptySelectorSelectsNoPods(t *testing.T) {
	service := web()
	service.Spec.Selector = nil
	w := newCluster(t, nil, service, webPod("a").Available().Obj())
	w.settles()
	if w.protected("a") || w.expects("a") || len(w.lb.servers) > 0 {
		t.Error("a Service without a selector must select no pods")
	}
}

// TestAFinalizerThatTheCacheDoesNotHaveIsKept shows that a list of finalizers from an outdated version
// does not replace a newer object: that would restore removed finalizers, or drop finalizers of
// others.
func TestAFinalizerThatTheCacheDoesNotHaveIsKept(t *testing.T) {
	const other = "example.com/other"
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	for name, outdated := range map[string]client.Object{"the employer": w.service(), "a pod": w.pod("p000")} {
		newer, changed := outdated.DeepCopyObject().(client.Object), outdated.DeepCopyObject().(client.Object)
		newer.SetFinalizers(append(newer.GetFinalizers(), other))
		w.updates(newer)
		changed.SetFinalizers(nil)
		if err := w.r.patch(t.Context(), changed, outdated); !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict", name, err)
		}
	}
	if got := w.service().Finalizers; !slices.Contains(got, other) || len(got) != 2 {
		t.Errorf("the employer has the finalizers %v", got)
	}
	if got := w.pod("p000").Finalizers; !slices.Contains(got, other) || len(got) != 2 {
		t.Errorf("the pod has the finalizers %v", got)
	}
}

func TestAConflictIsNoError(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.broken["p000"] = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p000", errors.New("changed"))
	if result := w.settles(); result.RequeueAfter > lastPoll {
		t.Errorf("reconciles again after %v", result.RequeueAfter)
	}
	delete(w.broken, "p000")
	w.settles()
	if !w.protected("p000") {
		t.Error("the next reconcile must write it")
	}
}

func TestAnUnchangedEmployerCostsNoWriteAndNoVerb(t *testing.T) {
	w := newCluster(t, nil, workload(5)...)
	w.settles()
	calls := len(w.lb.calls)
	w.broken["web"] = errors.New("a write to the employer")
	for i := range 5 {
		w.broken[fmt.Sprintf("p%03d", i)] = errors.New("a write to a pod")
	}
	if result := w.settles(); result.RequeueAfter != w.r.resync {
		t.Errorf("reconciles again after %v, want %v", result.RequeueAfter, w.r.resync)
	}
	if len(w.lb.calls) != calls {
		t.Errorf("calls %v", w.lb.calls[calls:])
	}
}

func TestAHangingCallDoesNotBlockTheWorker(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.r.provider.timeout = 20 * time.Millisecond
	release := w.lb.holdUp("GetCurrentEmployee")
	for range 2 {
		_, _ = w.reconcile()
	}
	w.wantEvent(EventGetCurrentEmployeesFailed, ErrHanging.Error())
	if len(w.lb.calls) > 0 {
		t.Fatalf("calls %v: no call may be made while another call hangs", w.lb.calls)
	}
	release()
	for deadline := time.Now().Add(time.Minute); !w.protected("p000"); w.clock.Step(time.Minute) {
		if time.Now().After(deadline) {
			t.Fatal("the employer is not reconciled after the call has returned")
		}
		_, _ = w.reconcile()
	}
}

func TestTheControllerBacksOffFromAProviderThatAlwaysFails(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	for _, verb := range []string{"GetSelectedEmployeeNames", "GetExpectedEmployer", "GetCurrentEmployer", "GetExpectedEmployee", "GetCurrentEmployee"} {
		w.lb.fail[verb] = errQuota
	}
	for range 2 {
		_, _ = w.reconcile()
	}
	if _, err := w.reconcile(); !errors.Is(err, ErrBackingOff) {
		t.Errorf("error %v, want ErrBackingOff", err)
	}
	clear(w.lb.fail)
	w.clock.Step(lastBreak)
	w.settles()
	if !w.protected("p000") {
		t.Error("the provider must be called again after the pause")
	}
}

// TestAnInstanceThatIsAwayDelaysNoOther counts failures by namespace and instance.
func TestAnInstanceThatIsAwayDelaysNoOther(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	p := newProvider(settings{qps: 1000, burst: 1000, timeout: time.Minute, clock: clk})
	at := func(namespace, instance string) target {
		return target{employer: types.NamespacedName{Namespace: namespace, Name: "web"}, instance: instance}
	}
	try := func(at target, failure error) error {
		_, err := call(t.Context(), p, at, "GetCurrentEmployee", func(context.Context) (struct{}, error) { return struct{}{}, failure })
		return err
	}
	for range breakAfter {
		if err := try(at("b", "away"), errQuota); !errors.Is(err, errQuota) {
			t.Fatal(err)
		}
	}
	if err := try(at("b", "away"), nil); !errors.Is(err, ErrBackingOff) || !strings.Contains(err.Error(), "instance away") {
		t.Errorf("error %v, want ErrBackingOff that names the instance", err)
	}
	if p.retryAfter(at("b", "away")) != firstBreak || p.retryAfter(at("a", "away")) != 0 {
		t.Error("the pause is not that of the instance")
	}
	for _, other := range []target{at("b", "near"), at("a", "away"), at("b", "")} {
		if err := try(other, nil); err != nil {
			t.Errorf("%v: %v", other, err)
		}
	}
	clk.SetTime(clk.Now().Add(firstBreak))
	if err := try(at("b", "away"), nil); err != nil || len(p.failing) > 0 {
		t.Errorf("error %v, failing %v: a success forgets the failures", err, p.failing)
	}
}

// TestInstancesOfANamespaceAreBounded counts those beyond the bound together.
func TestInstancesOfANamespaceAreBounded(t *testing.T) {
	p := newProvider(settings{qps: 1000, burst: 1000, timeout: time.Minute, clock: testingclock.NewFakePassiveClock(time.Unix(0, 0))})
	for i := range 2 * maxInstances {
		p.settle(target{employer: types.NamespacedName{Namespace: "b"}, instance: fmt.Sprint(i)}, errQuota)
	}
	if got := len(p.failing["b"]); got > maxInstances+1 {
		t.Errorf("%d instances are kept, want at most %d", got, maxInstances+1)
	}
	if err := p.admit(target{employer: types.NamespacedName{Namespace: "b"}, instance: "other"}); !errors.Is(err, ErrBackingOff) {
		t.Errorf("error %v, want ErrBackingOff: the instances beyond the bound are counted together", err)
	}
}

func TestAPodThatLosesTheControlLabelLosesTheFinalizer(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	w.becomes(webPod("p000").Available().Uncontrolled().Label("app", "other"))
	w.settles()
	if w.protected("p000") || w.expects("p000") {
		t.Error("the finalizer stays on the pod")
	}
}

// TestTheRetriesOfAnEmployerThatCannotBeCleanedBackOff checks that the employer waits for
// an employee that cannot be deleted, without a busy loop.
func TestTheRetriesOfAnEmployerThatCannotBeCleanedBackOff(t *testing.T) {
	w := newCluster(t, nil, workload(1)...)
	w.settles()
	w.lb.fail["DeleteEmployer"] = errQuota
	w.deletes(w.service())
	w.settles()
	w.lb.servers["p000-uid"] = server{id: "p000-uid", name: "p000"}
	w.lb.fail["DeleteEmployees"] = errQuota
	total := time.Duration(0)
	for range 12 {
		after := w.settles().RequeueAfter
		total += after
		w.clock.Step(after)
	}
	if total < 30*time.Second {
		t.Errorf("12 tries in %v", total)
	}
	clear(w.lb.fail)
	w.clock.Step(lastRetry)
	w.settles()
	w.settles()
	if w.service() != nil {
		t.Error("the employer must be released")
	}
}

// TestAPodKeepsTheFinalizerUntilItsTrafficIsOff uses a load balancer that drains: an
// accepted change takes effect later.
func TestAPodKeepsTheFinalizerUntilItsTrafficIsOff(t *testing.T) {
	w := newCluster(t, nil, workload(2)...)
	w.settles()
	w.becomes(webPod("p000").Available().Preparing("x", "update"))
	draining := true
	w.lb.after = func(s server) server {
		s.on = s.on || draining
		return s
	}
	var waits []time.Duration
	for range 7 {
		waits = append(waits, w.settles().RequeueAfter)
		if !w.protected("p000") || !w.protected("p001") {
			t.Fatal("the pod has open sessions and must keep the finalizer")
		}
	}
	want := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	w.becomes(webPod("p001").Available().Preparing("x", "update"))
	if again := w.settles().RequeueAfter; again != firstPoll {
		t.Errorf("another pod waits %v", again)
	}
	draining = false
	w.settles()
	if w.protected("p000") || w.protected("p001") {
		t.Error("traffic is off and the finalizer must be removed")
	}
}
