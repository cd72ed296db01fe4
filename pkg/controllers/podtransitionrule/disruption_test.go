package podtransitionrule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// pdb is a PodDisruptionBudget of app=web whose status counts these pods.
func pdb(name string, desired, healthy, expected int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 1, DesiredHealthy: desired, CurrentHealthy: healthy, ExpectedPods: expected,
		},
	}
}

// disruptionBudget stores a PodDisruptionBudget, with its last record.
func (s *harness) disruptionBudget(object *policyv1.PodDisruptionBudget) {
	object = object.DeepCopy()
	object.ResourceVersion = s.next()
	if record := s.records[object.Name]; record != "" {
		object.Annotations = map[string]string{appsv1alpha1.PermitsAnnotationKey: record}
	}
	s.index.SetDisruptionBudget(podindex.NewDisruptionBudget(object))
}

// explanation returns the annotation that states why a pod waits for PodDisruptionBudgets.
func (s *harness) explanation(pod string) string {
	return s.pods[pod].Annotations[appsv1alpha1.DetailAnnotationKey(string(rule.KindDisruptionBudget))]
}

func TestAPodDisruptionBudgetCountsAsARule(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 3, 3))
	s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj())
	s.round()
	if diff := cmp.Diff([]string{"web-000"}, s.permitted()); diff != "" {
		t.Errorf("permitted with one disruption (-want +got):\n%s", diff)
	}
	s.step(2 * time.Minute)
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted while no disruption is left: %v", got)
	}
	want := "NoRoom: 2 of 3 pods are healthy and in service; PodDisruptionBudget web requires 2"
	if got := s.explanation("web-001"); !strings.Contains(got, want) {
		t.Errorf("web-001 waits for %q, want %q", got, want)
	}
	if got := strings.Join(s.recorded(), "\n"); !strings.Contains(got, "waits for rule PodDisruptionBudget/web: 3 of 3 pods are healthy") {
		t.Errorf("no event names the PodDisruptionBudget: %s", got)
	}
}

// TestBothLimitsHold shows that a pod needs a slot of each of its rules and PodDisruptionBudgets.
func TestBothLimitsHold(t *testing.T) {
	for name, c := range map[string]struct {
		rule    string
		budgets map[string]int32
		want    []string
	}{
		"the rule is lower":                {rule: "1", budgets: map[string]int32{"web": 1}, want: []string{"web-000"}},
		"the PodDisruptionBudget is lower": {rule: "3", budgets: map[string]int32{"web": 2}, want: []string{"web-000", "web-001"}},
		"two PodDisruptionBudgets":         {rule: "4", budgets: map[string]int32{"a": 2, "b": 3}, want: []string{"web-000"}},
		"no disruption is permitted":       {rule: "4", budgets: map[string]int32{"web": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", atMostUnavailable("most", c.rule))
			for name, desired := range c.budgets {
				s.disruptionBudget(pdb(name, desired, 4, 4))
			}
			s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj(), waits(3).Obj())
			for range 3 {
				s.round()
			}
			if diff := cmp.Diff(c.want, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnUnreadyPodIsEvictedWhenTheEvictionAPIPermitsIt matters because its readiness gate would be closed for an eviction that
// cannot follow, and the pod may recover.
func TestAnUnreadyPodIsEvictedWhenTheEvictionAPIPermitsIt(t *testing.T) {
	evicts := deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor}
	deletes := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorClient}
	for name, tc := range map[string]struct {
		request deferreddelete.Request
		policy  policyv1.UnhealthyPodEvictionPolicyType
		desired int32
		want    []string
	}{
		"enough pods are healthy":                     {request: evicts, desired: 1, want: []string{"web-002"}},
		"too few are":                                 {request: evicts, desired: 2},
		"too few are, and it is evicted all the same": {request: evicts, policy: policyv1.AlwaysAllow, desired: 2, want: []string{"web-002"}},
		"a delete passes PodDisruptionBudgets":        {request: deletes, desired: 2, want: []string{"web-002"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			budget := pdb("web", tc.desired, 1, 3)
			if tc.policy != "" {
				budget.Spec.UnhealthyPodEvictionPolicy = &tc.policy
			}
			s.disruptionBudget(budget)
			pod := web(2).Unready(builders.Epoch).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
			since := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(tc.request.Begin(pod, since)))
			s.put(web(0).Obj(), web(1).Unready(builders.Epoch).Obj(), pod)
			s.round()
			if diff := cmp.Diff(tc.want, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAStatusThatDoesNotCountWithholds matters because the eviction API rejects the eviction then, too.
func TestAStatusThatDoesNotCountWithholds(t *testing.T) {
	stale, failed := pdb("web", 1, 3, 3), pdb("web", 1, 3, 3)
	stale.Generation = 2
	failed.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "jobs.batch does not implement scale",
	}}
	for want, object := range map[string]*policyv1.PodDisruptionBudget{
		"is of generation 1, and the present one is 2": stale,
		"jobs.batch does not implement scale":          failed,
	} {
		s := newHarness(t, opa.Options{})
		s.disruptionBudget(object)
		s.put(waits(0).Obj())
		s.step(20 * time.Second)
		if got := s.permitted(); len(got) > 0 {
			t.Errorf("permitted: %v", got)
		}
		if got := s.explanation("web-000"); !strings.Contains(got, "BudgetUnknown: ") || !strings.Contains(got, want) {
			t.Errorf("web-000 waits for %q, want %q", got, want)
		}
		s.disruptionBudget(pdb("web", 1, 3, 3))
		s.put(web(1).Obj())
		s.round()
		if diff := cmp.Diff([]string{"web-000"}, s.permitted()); diff != "" {
			t.Errorf("permitted once the status counts (-want +got):\n%s", diff)
		}
	}
}

func TestAPodSkipsAPodDisruptionBudgetByName(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 2, 2))
	s.put(waits(0).Annotation(appsv1alpha1.SkipRulesAnnotationKey, `{"skipRules":["PodDisruptionBudget/web"]}`).Obj(), waits(1).Obj())
	s.round()
	if diff := cmp.Diff([]string{"web-000"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}

// TestPodsWithoutTheControlLabelCountOnceTheStatusHasSettled matters because the status is the only source for them, and it may
// be older than the pods.
func TestPodsWithoutTheControlLabelCountOnceTheStatusHasSettled(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 4, 4)) // two of the four are not controlled
	s.put(waits(0).Obj(), waits(1).Obj())
	result := s.round()
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted at once: %v", got)
	}
	if result.RequeueAfter <= 0 || result.RequeueAfter > evaluation.SettledFor {
		t.Errorf("the next round is in %s", result.RequeueAfter)
	}
	s.step(evaluation.SettledFor)
	if diff := cmp.Diff([]string{"web-000", "web-001"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}

// TestADeletedPodIsNoPodWithoutTheControlLabel matters because the status still counts it as healthy.
func TestADeletedPodIsNoPodWithoutTheControlLabel(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 3, 3))
	s.put(waits(0).Obj(), waits(1).Obj()) // the third was deleted, and is not yet created again
	s.round()
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted: %v", got)
	}
	s.step(time.Second)
	s.disruptionBudget(pdb("web", 2, 2, 3))
	s.step(evaluation.SettledFor)
	if got := s.permitted(); len(got) > 0 {
		t.Errorf("permitted after the status has followed: %v", got)
	}
}

// TestAWriteThatFailedMayHaveHappened shows that its pod counts until the watch delivers it.
func TestAWriteThatFailedMayHaveHappened(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 3, 3))
	s.put(waits(1).Obj(), web(2).Obj(), web(0).Obj())
	s.refuse = func(string) error { return errors.New("the connection was lost") }
	if _, err := s.reconciler.Reconcile(t.Context(), "default"); err == nil {
		t.Fatal("the write was not refused")
	}
	s.refuse = nil
	s.put(waits(0).Obj()) // began to wait earlier, and is seen later
	s.round()
	if diff := cmp.Diff([]string{"web-001"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}

// TestAPodDisruptionBudgetOfOthersChangesNothing shows that its changes cause no round, and it is in no snapshot.
func TestAPodDisruptionBudgetOfOthersChangesNothing(t *testing.T) {
	s := newHarness(t, opa.Options{})
	other := pdb("other", 3, 3, 3)
	other.Spec.Selector.MatchLabels["app"] = "db"
	s.put(waits(0).Obj())
	s.news = 0
	s.disruptionBudget(other)
	other.Status.CurrentHealthy = 1
	s.disruptionBudget(other)
	s.index.RetireDisruptionBudget(types.NamespacedName{Namespace: "default", Name: "other"}, s.clock.Now())
	if s.news > 0 {
		t.Errorf("%d notifications", s.news)
	}
	s.round()
	if got := fmt.Sprint(s.permitted()); got != "[web-000]" {
		t.Errorf("permitted: %s", got)
	}
}

// TestPodsOfADisruptionBudgetShareItsRecord shows what permits under a PodDisruptionBudget cost: one write for all pods of a
// batch, at most one batch in an interval, and no write for unready pods, or when nothing is permitted.
func TestPodsOfADisruptionBudgetShareItsRecord(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	s.disruptionBudget(pdb("web", 2, 6, 6))
	s.put(waits(0).Obj(), waits(1).Obj(), web(2).Obj(), web(3).Obj(), web(4).Obj(), web(5).Obj())
	expect := func(when string, after time.Duration, writes int, want []string) {
		t.Helper()
		s.writes = 0
		s.step(after)
		if diff := cmp.Diff(want, append([]string{}, s.permitted()...)); diff != "" {
			t.Errorf("%s: permitted pods differ (-want +got):\n%s", when, diff)
		}
		if s.writes != writes {
			t.Errorf("%s: %d writes of the record, want %d", when, s.writes, writes)
		}
	}
	expect("after a rest", 0, 1, names(0, 2))
	s.put(waits(2).Obj())
	expect("too soon", 200*time.Millisecond, 0, names(0, 0))
	s.put(waits(3).Obj(), waits(4).Obj())
	expect("when the interval is over", 700*time.Millisecond, 1, names(2, 4))
	expect("without a slot", time.Minute, 0, names(0, 0))
	s.put(waits(5).Unready(builders.Epoch).Obj())
	expect("an unready pod", time.Minute, 0, []string{"web-005"})
	for uid := range s.pods {
		s.must(s.store.Delete(s.pods[uid]))
	}
	s.step(time.Minute)
	if left := len(s.reconciler.state.namespaces); left > 0 {
		t.Errorf("%d namespaces are remembered", left)
	}
}

// TestAPodOfARuleAndADisruptionBudgetIsInBothRecords matters because another manager may not have seen the rule yet.
func TestAPodOfARuleAndADisruptionBudgetIsInBothRecords(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 1, 3, 3))
	s.rules("web", atMostUnavailable("most", "2"))
	s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj())
	s.round()
	if diff := cmp.Diff(names(0, 2), s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
	var reserved [2][]types.UID
	for _, pod := range s.object("web").Status.Permits.Reserved {
		reserved[0] = append(reserved[0], pod.UID)
	}
	for _, pod := range permit.Decode(s.records["web"]).Reserved {
		reserved[1] = append(reserved[1], pod.UID)
	}
	if diff := cmp.Diff(reserved[0], reserved[1]); diff != "" || len(reserved[0]) != 2 || s.writes != 1 {
		t.Errorf("%d writes of the PodDisruptionBudget; reserved by the rule and by the PodDisruptionBudget (-rule +budget):\n%s", s.writes, diff)
	}
}

// TestARecordThatCannotBeWrittenPermitsNoPod matters because a manager without the right to write it must not fall back
// to permits without a record.
func TestARecordThatCannotBeWrittenPermitsNoPod(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "web", errors.New("no right"))
	gone := apierrors.NewNotFound(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "web")
	for name, tc := range map[string]struct {
		err       error
		wantRetry time.Duration
		wantErr   bool
	}{
		"a conflict": {err: errConflict(), wantRetry: evaluation.RetryStale},
		"forbidden":  {err: forbidden, wantErr: true},
		"deleted":    {err: gone},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.disruptionBudget(pdb("web", 2, 3, 3))
			s.put(waits(0).Obj(), web(1).Obj(), web(2).Obj(), waits(3).Label("app", "db").Obj())
			s.refuseRecord = func() error { return tc.err }
			result, err := s.reconciler.Reconcile(t.Context(), "default")
			if (err != nil) != tc.wantErr || err == nil && result.RequeueAfter != tc.wantRetry {
				t.Errorf("comes back after %s, %v", result.RequeueAfter, err)
			}
			if diff := cmp.Diff([]string{"web-003"}, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
			s.refuseRecord = nil
			s.round()
			if diff := cmp.Diff([]string{"web-000"}, s.permitted()); diff != "" {
				t.Errorf("permitted once it can be written (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARemovedRecordIsWrittenAgain shows that the reservations of a record count although its annotation was removed, and
// that it is back before any pod is permitted.
func TestARemovedRecordIsWrittenAgain(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 3, 3))
	s.put(waits(0).Obj(), waits(1).Obj(), web(2).Obj())
	s.refuse = func(string) error { return errConflict() }
	s.round() // web-000 is reserved, and not yet permitted
	s.refuse = nil
	before := s.records["web"]
	delete(s.records, "web")
	s.disruptionBudget(pdb("web", 2, 3, 3))
	s.round()
	if diff := cmp.Diff([]string{"web-000"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
	if s.records["web"] != before {
		t.Errorf("the record is %s, want %s", s.records["web"], before)
	}
}

// TestARecordOfADisruptionBudgetThatRequiresAViewThatNeverComes matters because any user of a PodDisruptionBudget may write its
// annotations. It stops the namespace, but not for ever, and is replaced.
func TestARecordOfADisruptionBudgetThatRequiresAViewThatNeverComes(t *testing.T) {
	for name, record := range map[string]string{
		"a view from the future": `{"viewResourceVersion":"999999999"}`,
		"a pod from the future":  `{"reserved":{"web-001-uid":"999999999"}}`,
		"a pod without version":  `{"reserved":{"unknown":""}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.records["web"] = record
			s.disruptionBudget(pdb("web", 1, 2, 2))
			s.put(waits(0).Obj(), waits(1).Obj())
			for _, d := range []time.Duration{0, time.Minute, viewTimeout - time.Minute - time.Nanosecond} {
				if result := s.step(d); result.RequeueAfter != evaluation.RetryStale || s.writes > 0 || len(s.permitted()) > 0 {
					t.Fatalf("%s later it goes on: comes back after %s", d, result.RequeueAfter)
				}
			}
			s.step(time.Nanosecond)
			if diff := cmp.Diff(names(0, 1), s.permitted()); diff != "" {
				t.Errorf("permitted pods differ (-want +got):\n%s", diff)
			}
			if fresh := s.index.Snapshot("default", nil).ResourceVersion; !reached(fresh, permit.Decode(s.records["web"])) {
				t.Errorf("at %s the record still requires %s", fresh, s.records["web"])
			}
		})
	}
}
