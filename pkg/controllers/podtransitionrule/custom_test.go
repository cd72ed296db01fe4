package podtransitionrule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func inline(name, module string) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{
		Name: name, Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce,
		Rego: &appsv1alpha1.RegoRule{Module: "package rule\n\n" + module},
	}
}

func referring(name, to, parameters string) appsv1alpha1.TransitionRule {
	rule := inline(name, "")
	rule.Rego = &appsv1alpha1.RegoRule{PolicyRef: &appsv1alpha1.PolicyReference{Name: to}}
	if parameters != "" {
		rule.Rego.Parameters = &apiextensionsv1.JSON{Raw: []byte(parameters)}
	}
	return rule
}

// policy makes or edits a PodTransitionPolicy.
func (s *harness) policy(name string, generation int64, module, schema string) {
	object := &appsv1alpha1.PodTransitionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "policy", Generation: generation, ResourceVersion: s.next()},
		Spec:       appsv1alpha1.PodTransitionPolicySpec{Module: "package rule\n\n" + module},
	}
	if schema != "" {
		object.Spec.Parameters = &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(schema)}}
	}
	s.index.SetPolicy(object)
}

// blocked is why the first pod waits: "<code>: <message>", "" when none does.
func (s *harness) blocked() string {
	object := s.object("web")
	if len(object.Status.Blocked) == 0 {
		return ""
	}
	return object.Status.Blocked[0].Reason + ": " + object.Status.Blocked[0].Message
}

func TestCustomRules(t *testing.T) {
	const zoneSchema = `{"type": "object", "required": ["zone"], "properties": {"zone": {"type": "string"}}}`
	for name, tc := range map[string]struct {
		arrange func(*harness)
		want    string // as status.blocked has it; "" when the pod is permitted
	}{
		"allow is true": {func(s *harness) { s.rules("web", inline("mine", `allow if input.pod.labels.app == "web"`)) }, ""},
		"allow is undefined, and reason is not": {func(s *harness) {
			s.rules("web", inline("mine", "allow if input.pod.labels.app == \"db\"\n\nreason := \"only databases\""))
		}, "NotAllowed: only databases"},
		"deny is empty": {func(s *harness) { s.rules("web", inline("mine", `deny contains "no" if input.pod.labels.app == "db"`)) }, ""},
		"deny has a message": {func(s *harness) {
			s.rules("web", inline("mine", `deny contains "come later" if input.pod.labels.app == "web"`))
		}, "Denied: come later"},
		"another stage": {func(s *harness) { s.rules("web", inPostCheck(inline("mine", "allow := false"))) }, ""},
		"a policy with parameters": {func(s *harness) {
			s.policy("zone", 1, "allow if input.pod.labels.app == input.parameters.zone", zoneSchema)
			s.rules("web", referring("mine", "zone", `{"zone": "web"}`))
		}, ""},
		"a policy that is not there": {func(s *harness) { s.rules("web", referring("mine", "zone", "")) },
			`PolicyNotFound: spec.rules[mine].rego.policyRef: there is no PodTransitionPolicy "zone"`},
		"a policy that is not there, for another kind of operation": {func(s *harness) {
			rule := referring("mine", "zone", "")
			rule.Conditions = []string{"delete"}
			s.rules("web", rule)
		}, ""},
		"a policy that is edited": {func(s *harness) {
			s.policy("zone", 1, "allow := true", "")
			s.rules("web", referring("mine", "zone", ""))
			s.put(web(7).Obj())
			s.round()
			s.policy("zone", 2, "allow := false\n\nreason := \"edited\"", "")
		}, "NotAllowed: edited"},
		"a module that does not compile": {func(s *harness) { s.rules("web", inline("mine", "allow if input.pod.lables.app")) }, "CompileFailed: "},
		"a module that does not compile, and is not enforced": {func(s *harness) {
			s.rules("web", enforced(inline("mine", "allow if input.pod.lables.app"), appsv1alpha1.EnforcementDryRun))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			tc.arrange(s)
			s.put(waits(0).Obj())
			s.step(2 * statusInterval)
			got := s.blocked()
			if tc.want == "" && len(s.permitted()) != 1 || !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestARuleReadsThePermitsBeforeIt shows that of two pods of one shard that wait at once only one
// is permitted, with any verdicts of the rule on each pod alone.
func TestARuleReadsThePermitsBeforeIt(t *testing.T) {
	const onePerShard = `deny contains "another pod of the shard is on its way" if {
	some other in input.pods
	other.labels.shard == input.pod.labels.shard
	other.permitted
}`
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("shard", onePerShard))
	for i := range 6 {
		s.put(waits(i).Label("shard", fmt.Sprint(i%2)).Obj())
	}
	s.round()
	if diff := cmp.Diff(names(0, 2), s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
	s.step(2 * statusInterval)
	if diff := cmp.Diff([]string{}, append([]string{}, s.permitted()...)); diff != "" {
		t.Errorf("permitted later (-want +got):\n%s", diff)
	}
	if got := s.object("web").Status.Rules[0]; got.Evaluated != 6 || got.Withheld != 4 {
		t.Errorf("evaluated %d and withheld %d, want 6 and 4", got.Evaluated, got.Withheld)
	}
}

// TestARateLimitCountsItsOwnRound shows that a rule permits N pods in a window, even if more wait at once, and
// the rest when the window has passed.
func TestARateLimitCountsItsOwnRound(t *testing.T) {
	const twoAMinute = `deny contains {"message": "two a minute", "retry_after_seconds": 20} if {
	count([permit | some permit in input.permits; permit.at > input.now - 60000000000]) >= 2
}`
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("rate", twoAMinute))
	for i := range 5 {
		s.put(waits(i).Obj())
	}
	for round, want := range [][]string{names(0, 2), {}, names(2, 4), names(4, 5)} {
		result := s.round()
		if diff := cmp.Diff(want, append([]string{}, s.permitted()...)); diff != "" {
			t.Errorf("round %d: permitted pods differ (-want +got):\n%s", round, diff)
		}
		if round < 3 && (result.RequeueAfter <= 0 || result.RequeueAfter > 20*time.Second) {
			t.Errorf("round %d: comes back after %s", round, result.RequeueAfter)
		}
		step := 61 * time.Second
		if round == 0 {
			step = 10 * time.Second
		}
		s.clock.SetTime(s.clock.Now().Add(step))
	}
}

// TestATrialCountsThePodsThatEnforcementBlocks shows that the counts of DryRun equal the counts of Enforce.
func TestATrialCountsThePodsThatEnforcementBlocks(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", enforced(labelled("approved", "approved"), appsv1alpha1.EnforcementDryRun))
	put := func(generation int) {
		for i := range 6 {
			pod := web(i).Waiting("a", "upgrade", s.clock.Now().Add(time.Duration(generation)*time.Second))
			if i%3 == 0 {
				pod.Label("approved", "yes")
			}
			s.put(pod.Obj())
		}
	}
	put(0)
	s.round()
	trial := s.object("web").Status.Rules[0]
	if len(s.permitted()) != 6 || trial.WouldWithhold != 4 || trial.Withheld != 0 || len(trial.LastRejections) != appsv1alpha1.MaxStatusRejections {
		t.Errorf("the status of the trial is %+v", trial)
	}
	s.rules("web", labelled("approved", "approved"))
	put(1)
	s.step(2 * statusInterval)
	got := s.object("web").Status
	if rule := got.Rules[0]; len(s.permitted()) != 2 || rule.Withheld != trial.WouldWithhold || rule.WouldWithhold != 0 || len(got.Blocked) != 4 {
		t.Errorf("the status of the enforced rule is %+v, and %d pods are blocked", rule, len(got.Blocked))
	}
}
