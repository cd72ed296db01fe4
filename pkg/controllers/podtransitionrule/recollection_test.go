package podtransitionrule

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/evaluation"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
)

func manyRules(count int) []appsv1alpha1.TransitionRule {
	var rules []appsv1alpha1.TransitionRule
	for i := range count {
		rules = append(rules, labelled(fmt.Sprint("rule-", i), "approved"))
	}
	rules[0] = inline("rule-0", `deny contains sprintf("%s is not to go", [input.pod.name]) if input.pod.name != "web-000"`)
	return rules
}

// TestWhatIsRememberedIsBoundedInBytes shows that no more is remembered than there is room for, that it
// makes no difference to decisions, and that it is dropped with the rules.
func TestWhatIsRememberedIsBoundedInBytes(t *testing.T) {
	const rules, pods = 20, 100
	blocked := map[int64][]appsv1alpha1.BlockedPod{}
	for _, most := range []int64{defaultMemory, 100_000, 1} {
		s := newHarness(t, opa.Options{})
		s.restart(Config{Memory: most})
		evaluator := s.reconciler.evaluator
		s.rules("web", manyRules(rules)...)
		for i := range pods {
			s.put(waits(i).Obj())
		}
		for range 3 {
			s.step(statusInterval)
			if got := evaluator.RememberedBytes(""); got > most || got == 0 && most > 1 {
				t.Errorf("%d bytes are remembered, at most %d may be", got, most)
			}
		}
		blocked[most] = s.object("web").Status.Blocked
		if most != defaultMemory {
			continue
		}
		if got, all := evaluator.RememberedBytes("default"), evaluator.RememberedBytes(""); got != all {
			t.Errorf("the namespace is charged with %d bytes of %d", got, all)
		}
		s.rules("web", manyRules(1)...)
		s.step(statusInterval)
		if got := evaluator.RememberedRules(); got != 1 {
			t.Errorf("%d rules are remembered, want 1", got)
		}
		s.index.DeleteRule(types.NamespacedName{Namespace: "default", Name: "web"})
		s.step(statusInterval)
		if got := evaluator.RememberedBytes(""); got != 0 {
			t.Errorf("%d bytes are left of a rule that is gone", got)
		}
	}
	for most, got := range blocked {
		if diff := cmp.Diff(blocked[defaultMemory], got); diff != "" || len(got) == 0 {
			t.Errorf("with %d bytes it decides otherwise (-want +got):\n%s", most, diff)
		}
	}
}

// TestARoundHoldsNoMoreThanItMay shows that a round with more rules and requests than it may hold
// withholds every pod, with a reason.
func TestARoundHoldsNoMoreThanItMay(t *testing.T) {
	const rules, pods = 60, 100
	for name, tc := range map[string]struct {
		rules []appsv1alpha1.TransitionRule
		want  rule.Code
	}{
		"label checks":    {manyRules(rules)[1:], rule.CodeLabelMismatch},
		"users' modules":  {manyRules(1), rule.CodeNotReached},
		"an availability": {[]appsv1alpha1.TransitionRule{atMostUnavailable("few", "1"), labelled("approved", "approved")}, rule.CodeLabelMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.reconciler.roundBytes = 30_000
			s.rules("web", tc.rules...)
			for i := range pods {
				s.put(waits(i).Obj())
			}
			turn, _ := s.reconciler.begin("default")
			view, _ := s.reconciler.snapshot(t.Context(), turn, "default")
			outcome := evaluation.Outcome{Evaluation: s.reconciler.evaluator.Evaluate(t.Context(), turn, view.Snapshot)}
			s.reconciler.end(turn)
			reasons := 0
			for _, request := range view.Waiting {
				of := outcome.Reasons(request.Key())
				if len(of) == 0 || of[0].Code != tc.want {
					t.Fatalf("%s is withheld for %v", request.Pod.Name, of)
				}
				reasons += len(of)
			}
			// The first reason of each pod is always kept.
			if most := pods + int(s.reconciler.roundBytes/evaluation.ReasonBytes); reasons > most {
				t.Errorf("it holds %d reasons, at most %d may be", reasons, most)
			}
			if got := s.permitted(); len(got) > 0 {
				t.Errorf("permitted: %v", got)
			}
		})
	}
}
