package podtransitionrule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/evaluation"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
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

// disruptionBudget stores a PodDisruptionBudget.
func (s *harness) disruptionBudget(object *policyv1.PodDisruptionBudget) {
	s.index.SetDisruptionBudget(podindex.DisruptionBudgetOf(object))
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

// TestAnUnreadyPodTakesNoDisruption matters because it is not healthy, and the eviction API decides about it by the
// unhealthyPodEvictionPolicy.
func TestAnUnreadyPodTakesNoDisruption(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.disruptionBudget(pdb("web", 2, 2, 3))
	s.put(web(0).Obj(), web(1).Obj(), waits(2).Unready(builders.Epoch).Obj())
	s.round()
	if diff := cmp.Diff([]string{"web-002"}, s.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
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
	s.index.DeleteDisruptionBudget(types.NamespacedName{Namespace: "default", Name: "other"})
	if s.news > 0 {
		t.Errorf("%d notifications", s.news)
	}
	s.round()
	if got := fmt.Sprint(s.permitted()); got != "[web-000]" {
		t.Errorf("permitted: %s", got)
	}
}
