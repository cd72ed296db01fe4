package podtransitionrule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/heapsize"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
)

// fullRecollection is that of a rule that refused so many pods with a text each.
func fullRecollection(pods int, text string) (*recollection, []*rule.PodFact) {
	remembered := newRecollection()
	var facts []*rule.PodFact
	var requests []rule.Request
	var verdicts []rule.Verdict
	for i := range pods {
		fact := &rule.PodFact{UID: types.UID(fmt.Sprintf("%036d", i)), Name: fmt.Sprint("web-", i)}
		request := rule.Request{
			Pod: fact, Stage: appsv1alpha1.StagePreCheck, ID: strings.Repeat("i", 62), Type: strings.Repeat("t", 63),
			Generation: fmt.Sprint(1_700_000_000_000_000_000 + i), Task: rule.Task{State: rule.TaskFailed, Message: strings.Clone(text)},
		}
		facts, requests = append(facts, fact), append(requests, request)
		verdict := rule.Verdict{Code: rule.CodeDenied, Message: strings.Clone(text), Details: strings.Clone(text)}
		verdicts = append(verdicts, verdict)
		if remembered.lastDenials == nil {
			remembered.lastDenials, remembered.counted = lastDenials{}, map[string]counted{}
		}
		key := request.Key()
		remembered.lastDenials[key] = lastDenial{verdict: verdict}
		remembered.nextChecks[request.Key()] = time.Unix(1, 0)
		remembered.counted[request.Key()+"@"+request.Generation] = counted{}
		remembered.messageCache.of(rule.CodeLabelMismatch, appsv1alpha1.TransitionRule{}, request, nil)
	}
	remembered.memo.Remember(requests, verdicts, rule.Environment{})
	remembered.fallback.Remember(slices.Clone(requests), slices.Clone(verdicts), rule.Environment{})
	return remembered, facts
}

// TestRecollectionBytes compares with what the values keep alive on the heap.
func TestRecollectionBytes(t *testing.T) {
	for _, pods := range []int{0, 1, 2, 7, 8, 15, 1000, 1800} {
		for _, text := range []string{"", strings.Repeat("x", rule.MaxMessageBytes)} {
			remembered, facts := fullRecollection(pods, text)
			got, heap := remembered.bytes(), heapsize.New(heapsize.Options{Shared: []any{facts}}).Of(remembered)
			if got < heap || got > 2*heap+2*recollectionBytes {
				t.Errorf("%d pods with texts of %d bytes: counts %d bytes, takes %d", pods, len(text), got, heap)
			}
		}
	}
}

func manyRules(count int) []appsv1alpha1.TransitionRule {
	var rules []appsv1alpha1.TransitionRule
	for i := range count {
		rules = append(rules, labelled(fmt.Sprint("rule-", i), "approved"))
	}
	rules[0] = inline("rule-0", `deny contains sprintf("%s is not to go", [input.pod.name]) if input.pod.name != "web-000"`)
	return rules
}

// TestWhatIsRememberedIsBoundedInBytes shows that no more is remembered than there is room for, that it
// makes no difference to what is decided, and that it goes with the rules.
func TestWhatIsRememberedIsBoundedInBytes(t *testing.T) {
	const rules, pods = 20, 100
	blocked := map[int64][]appsv1alpha1.BlockedPod{}
	for _, most := range []int64{defaultMemory, 100_000, 0} {
		s := newHarness(t, opa.Options{})
		remembered := fairshare.NewCache[*preparedRule, *recollection](most)
		s.reconciler.state.remembered = remembered
		s.rules("web", manyRules(rules)...)
		for i := range pods {
			s.put(waits(i).Obj())
		}
		for range 3 {
			s.step(statusInterval)
			if got := remembered.Bytes(); got > most || got == 0 && most > 0 {
				t.Errorf("%d bytes are remembered, at most %d may be", got, most)
			}
		}
		blocked[most] = s.object("web").Status.Blocked
		if most != defaultMemory {
			continue
		}
		if got := remembered.BytesOf("default"); got != remembered.Bytes() {
			t.Errorf("the namespace is charged with %d bytes of %d", got, remembered.Bytes())
		}
		s.rules("web", manyRules(1)...)
		s.step(statusInterval)
		if got := remembered.Len(); got != 1 {
			t.Errorf("%d rules are remembered, want 1", got)
		}
		s.index.DeleteRule(types.NamespacedName{Namespace: "default", Name: "web"})
		s.step(statusInterval)
		if got := remembered.Bytes(); got != 0 {
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
			evaluated := s.reconciler.evaluate(t.Context(), turn, view)
			s.reconciler.end(turn)
			reasons := 0
			for _, request := range view.Waiting {
				of := evaluated.withheld[request.Key()]
				if len(of) == 0 || of[0].Code != tc.want {
					t.Fatalf("%s is withheld for %v", request.Pod.Name, of)
				}
				reasons += len(of)
			}
			// The first reason of each pod is always kept.
			if most := pods + int(s.reconciler.roundBytes/reasonBytes); reasons > most {
				t.Errorf("it holds %d reasons, at most %d may be", reasons, most)
			}
			if got := s.permitted(); len(got) > 0 {
				t.Errorf("permitted: %v", got)
			}
		})
	}
}
