package podtransitionrule

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func manyRules(count int) []appsv1alpha1.TransitionRule {
	var rules []appsv1alpha1.TransitionRule
	for i := range count {
		rules = append(rules, labelled(fmt.Sprint("rule-", i), "approved"))
	}
	rules[0] = inline("rule-0", `deny contains sprintf("%s is not to go", [input.pod.name]) if input.pod.name != "web-000"`)
	return rules
}

// TestNamespacesShareMemory shows that namespaces which would remember more than there is room for get equal parts
// of it, and never too much together.
func TestNamespacesShareMemory(t *testing.T) {
	const most, namespaces = 1000, 4
	s := newState(most, nil)
	for range 50 {
		for i := range namespaces {
			share := s.share(fmt.Sprint(i))
			s.note(s.namespace(fmt.Sprint(i)), share)
			if got := s.remembered; got > most || share == 0 {
				t.Fatalf("%d bytes are remembered, %d of them by namespace %d", got, share, i)
			}
		}
	}
	for name, known := range s.namespaces {
		if known.remembered < most/(namespaces+1)-namespaces || known.remembered > most/(namespaces+1)+namespaces {
			t.Errorf("namespace %s remembers %d bytes", name, known.remembered)
		}
	}
}

// TestWhatIsRememberedIsBoundedInBytes shows that no more is remembered than there is room for, that it
// makes no difference to decisions, and that it is dropped with the rules.
func TestWhatIsRememberedIsBoundedInBytes(t *testing.T) {
	const rules, pods = 20, 100
	blocked := map[int64][]appsv1alpha1.BlockedPod{}
	for _, most := range []int64{defaultMemory, 200_000, 1} {
		s := newHarness(t, opa.Options{})
		s.restart(Config{Memory: most})
		s.rules("web", manyRules(rules)...)
		for i := range pods {
			s.put(waits(i).Obj())
		}
		for range 3 {
			s.step(statusInterval)
			if got := s.reconciler.state.remembered; got > most || got == 0 && most > 1 {
				t.Errorf("%d bytes are remembered, at most %d may be", got, most)
			}
		}
		blocked[most] = s.object("web").Status.Blocked
		if most != defaultMemory {
			continue
		}
		before := s.reconciler.state.remembered
		s.rules("web", manyRules(1)...)
		s.step(statusInterval)
		if got := s.reconciler.state.remembered; got == 0 || got > before/rules*2 {
			t.Errorf("one rule of %d remembers %d bytes, and all of them remembered %d", rules, got, before)
		}
		s.index.DeleteRule(types.NamespacedName{Namespace: "default", Name: "web"})
		s.step(statusInterval)
		if got := s.reconciler.state.remembered; got != 0 {
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
			outcome := evaluation.Outcome{Evaluation: s.reconciler.evaluate(t.Context(), turn, view)}
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
