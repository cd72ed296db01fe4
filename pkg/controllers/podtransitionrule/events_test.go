package podtransitionrule

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

func expectEvents(t *testing.T, s *harness, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.recorded()); diff != "" {
		t.Errorf("%s: events differ (-want +got):\n%s", what, diff)
	}
}

// freshlyWaiting is pod web-000, which begins to wait now.
func freshlyWaiting(s *harness) *builders.PodBuilder {
	return web(0).Waiting("a", "upgrade", s.clock.Now())
}

// relabel adds a label to a stored pod.
func relabel(s *harness, name, key, value string) {
	pod := s.pods[name].DeepCopy()
	metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
	s.put(pod)
}

const approvedMissing = `Normal Withheld operation upgrade of id a waits for rule web/approved: label approved is missing, "yes" is required (LabelMismatch)`

// TestAPodThatIsHeldHasOneEvent shows that the event comes after ten seconds, with the first of its reasons; for
// another first reason again, once a minute at most.
func TestAPodThatIsHeldHasOneEvent(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"), labelled("checked", "checked"), labelled("delivered", "delivered"))
	s.put(freshlyWaiting(s).Obj())
	s.round()
	s.step(explainAfter - time.Second)
	expectEvents(t, s, "it may go on in a moment")
	s.step(time.Second)
	expectEvents(t, s, "it is held", approvedMissing)
	for range 5 {
		s.step(time.Minute)
	}
	expectEvents(t, s, "it goes on waiting")
	relabel(s, "web-000", "approved", "yes")
	s.step(time.Second)
	expectEvents(t, s, "it waits for what was a further reason")
	s.rules("web", labelled("signed", "signed"))
	s.step(time.Second)
	expectEvents(t, s, "it waits for another reason",
		`Normal Withheld operation upgrade of id a waits for rule web/signed: label signed is missing, "yes" is required (LabelMismatch)`)
	s.rules("web", labelled("stamped", "stamped"))
	s.step(withheldInterval - time.Second)
	expectEvents(t, s, "and for another event too soon")
}

// TestARestartRecordsNothingAgain has 100 pods that wait, whose annotations have their recorded reasons.
func TestARestartRecordsNothingAgain(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"), labelled("checked", "checked"))
	const pods = 100
	for i := range pods {
		s.put(web(i).Waiting("a", "upgrade", s.clock.Now()).Obj())
	}
	for range 2 * pods {
		s.step(time.Second)
	}
	if got := len(s.recorded()); got != pods {
		t.Errorf("%d events for %d pods", got, pods)
	}
	restarted := restart(t, s)
	for range 2 * pods {
		restarted.step(time.Second)
	}
	expectEvents(t, restarted, "after a restart")
}

// TestManyRulesAreOneEvent has 15 PodTransitionRules of 64 rules, and one event for each pod.
// What the pod carries is bounded, too.
func TestManyRulesAreOneEvent(t *testing.T) {
	s := newHarness(t, opa.Options{})
	for i := range 15 {
		var rules []appsv1alpha1.TransitionRule
		for j := range 64 {
			rules = append(rules, labelled(fmt.Sprintf("rule-%02d", j), strings.Repeat("x", 40)+fmt.Sprint(j)))
		}
		s.rules(fmt.Sprintf("web-%02d", i), rules...)
	}
	const pods = 3
	for i := range pods {
		s.put(waits(i).Obj())
	}
	for range 2 * pods {
		s.step(time.Second)
	}
	events := s.recorded()
	if len(events) != pods {
		t.Errorf("%d events for %d pods", len(events), pods)
	}
	for _, event := range events {
		if !strings.Contains(event, "web-00/rule-00: ") {
			t.Errorf("not the first of the reasons: %s", event)
		}
	}
	for name, pod := range s.pods {
		if got := len(pod.Annotations); got != maxExplanations {
			t.Errorf("pod %s has %d annotations, want %d", name, got, maxExplanations)
		}
		for key, text := range pod.Annotations {
			var detail appsv1alpha1.Detail
			s.must(json.Unmarshal([]byte(text), &detail))
			if len(detail.RejectInfo) != evaluation.MaxReasons {
				t.Errorf("annotation %s of pod %s has %d reasons, want %d", key, name, len(detail.RejectInfo), evaluation.MaxReasons)
			}
		}
	}
}

// TestAWarningComesWithThePermit matters because that is when the rule would have held the pod back.
func TestAWarningComesWithThePermit(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	s.rules("other", enforced(labelled("audited", "audited"), appsv1alpha1.EnforcementWarn),
		enforced(labelled("booked", "booked"), appsv1alpha1.EnforcementWarn), enforced(labelled("tried", "tried"), appsv1alpha1.EnforcementDryRun))
	s.put(waits(0).Obj())
	s.step(time.Second)
	expectEvents(t, s, "it waits", approvedMissing)
	relabel(s, "web-000", "approved", "yes")
	s.refuse = func(string) error { return errConflict() }
	s.step(time.Second)
	expectEvents(t, s, "the permit is not written")
	s.refuse = nil
	s.step(time.Second)
	expectEvents(t, s, "it is permitted", `Warning WouldWithhold operation upgrade of id a would wait for rule other/audited if it were enforced: `+
		`label audited is missing, "yes" is required (LabelMismatch) (and 1 more rules)`)
	if diff := cmp.Diff([]string{"web/approved"}, s.moves["web-000"][0].Rules); diff != "" {
		t.Errorf("rules that passed differ (-want +got):\n%s", diff)
	}
}

// TestRulesThatPassed shows that these are the enforced rules that apply.
func TestRulesThatPassed(t *testing.T) {
	s := newHarness(t, opa.Options{})
	yes := func(name string) appsv1alpha1.TransitionRule { return labelled(name, "approved") }
	post, typed, filtered := yes("post"), yes("typed"), yes("filtered")
	post.Stage, typed.Conditions = appsv1alpha1.StagePostCheck, []string{"delete"}
	filtered.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}
	s.rules("web", yes("a"), yes("b"), yes("c"), yes("d"), yes("e"), yes("f"), yes("g"), post, typed, filtered, enforced(yes("warns"), appsv1alpha1.EnforcementWarn))
	s.put(waits(0).Label("approved", "yes").Obj())
	s.round()
	want := []string{"web/a", "web/b", "web/c", "web/d", "web/e", "and 2 more"}
	if diff := cmp.Diff(want, s.moves["web-000"][0].Rules); diff != "" {
		t.Errorf("rules that passed differ (-want +got):\n%s", diff)
	}
}

// TestARolloutThatIsHeldHasOneEvent on the Deployment, for all outcomes of its single pods,
// and none after a restart.
func TestARolloutThatIsHeldHasOneEvent(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	s.index.SetOwner(podindex.Owner{UID: "d", Namespace: "default", Kind: "Deployment", Name: "web", Desired: 3})
	s.index.SetOwner(podindex.Owner{UID: "r", Namespace: "default", Kind: "ReplicaSet", Name: "web-1", Controller: "d", Desired: 3})
	put := func(s *harness, i int, id string) {
		pod := web(i).Waiting(id, "delete", s.clock.Now()).Obj()
		controls := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", UID: "r", Controller: &controls}}
		s.put(pod)
	}
	rollouts := func(s *harness) (rollouts []string) {
		for _, event := range s.recorded() {
			if strings.Contains(event, EventRolloutHeld) {
				rollouts = append(rollouts, event)
			}
		}
		return rollouts
	}
	expect := func(s *harness, what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, rollouts(s)); diff != "" {
			t.Errorf("%s: events differ (-want +got):\n%s", what, diff)
		}
	}
	put(s, 7, "mine")
	s.step(explainAfter)
	s.step(time.Second)
	expect(s, "another operation on a pod of the Deployment")

	for i := range 3 {
		put(s, i, appsv1alpha1.PodDeleteID)
	}
	for range 20 {
		s.step(time.Second)
	}
	held := `Normal RolloutHeld 3 pods wait for deletion, the first for rule web/approved: label approved is missing, "yes" is required (LabelMismatch)`
	expect(s, "three pods wait", held)
	for i := range 3 {
		relabel(s, fmt.Sprintf("web-%03d", i), "approved", "yes")
	}
	s.step(time.Second)
	s.step(rolloutOver - 2*time.Minute/10)
	put(s, 3, appsv1alpha1.PodDeleteID)
	s.step(explainAfter)
	s.step(time.Second)
	expect(s, "the next step of the rollout")

	restarted := restart(t, s)
	restarted.index.SetOwner(podindex.Owner{UID: "d", Namespace: "default", Kind: "Deployment", Name: "web", Desired: 3})
	restarted.index.SetOwner(podindex.Owner{UID: "r", Namespace: "default", Kind: "ReplicaSet", Name: "web-1", Controller: "d", Desired: 3})
	put(restarted, 4, appsv1alpha1.PodDeleteID)
	for range 20 {
		restarted.step(time.Second)
	}
	expect(restarted, "after a restart")

	for _, name := range []string{"web-003", "web-004"} {
		relabel(restarted, name, "approved", "yes")
	}
	restarted.step(time.Second)
	restarted.step(rolloutOver)
	put(restarted, 5, appsv1alpha1.PodDeleteID)
	restarted.step(explainAfter)
	restarted.step(time.Second)
	expect(restarted, "another rollout", strings.Replace(held, "3 pods wait", "1 pod waits", 1))
}

// TestFailuresAreWarnings shows that the event of a rule that cannot be evaluated is a warning, and of a rule that denies is not.
func TestFailuresAreWarnings(t *testing.T) {
	for code, want := range map[rule.Code]string{
		rule.CodeNoRoom: corev1.EventTypeNormal, rule.CodeLabelMismatch: corev1.EventTypeNormal, rule.CodeDenied: corev1.EventTypeNormal,
		rule.CodeNotAllowed: corev1.EventTypeNormal, rule.CodeWebhookProcessing: corev1.EventTypeNormal, rule.CodeWebhookPending: corev1.EventTypeNormal,
		rule.CodeWebhookRejected: corev1.EventTypeNormal, rule.CodeNotReached: corev1.EventTypeNormal,
		rule.CodeWebhookFailed: corev1.EventTypeWarning, rule.CodeTimeout: corev1.EventTypeWarning, rule.CodeEvaluationFailed: corev1.EventTypeWarning,
		rule.CodeCompileFailed: corev1.EventTypeWarning, rule.CodePolicyNotFound: corev1.EventTypeWarning, rule.CodePolicyTooExpensive: corev1.EventTypeWarning,
		rule.CodeInvalidParameters: corev1.EventTypeWarning, rule.CodeUndefined: corev1.EventTypeWarning, rule.CodeWrongType: corev1.EventTypeWarning,
	} {
		if got := eventTypeFor(code); got != want {
			t.Errorf("%s is of type %s, want %s", code, got, want)
		}
	}
}
