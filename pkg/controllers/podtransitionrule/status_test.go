package podtransitionrule

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/golden"
)

// TestStatusTexts compares the status after the first round with files, to be reviewed.
func TestStatusTexts(t *testing.T) {
	atLeast := func(name, least string) appsv1alpha1.TransitionRule {
		bound := intstr.Parse(least)
		rule := ruleOfKind("min", nil, &bound)
		rule.Name = name
		return rule
	}
	for name, tc := range map[string]struct {
		rules    []appsv1alpha1.TransitionRule
		arrange  func(*harness)
		options  opa.Options
		selector *metav1.LabelSelector
	}{
		"no-pod-waits": {
			rules:   []appsv1alpha1.TransitionRule{atMostUnavailable("one", "1")},
			arrange: func(s *harness) { s.put(web(0).Obj(), web(1).Obj()) },
		},
		"permitted": {
			rules:   []appsv1alpha1.TransitionRule{atMostUnavailable("one", "1")},
			arrange: func(s *harness) { s.put(waits(0).Obj(), web(1).Obj()) },
		},
		"blocked": {
			rules: []appsv1alpha1.TransitionRule{atMostUnavailable("third", "34%"), labelled("approved", "approved"), atLeast("two", "2")},
			arrange: func(s *harness) {
				s.put(waits(0).Obj(), waits(1).Label("approved", "no").Obj())
				s.put(waits(2).Label("approved", "yes").Obj(), waits(3).Label("approved", "yes").Obj())
			},
		},
		"blocked-after-an-operation": {
			rules: []appsv1alpha1.TransitionRule{inPostCheck(labelled("checked", "checked"))},
			arrange: func(s *harness) {
				pod := builders.MakePod("web-000").Label("app", "web").UnreadyByGate(s.clock.Now())
				s.put(pod.Finished("a", "upgrade", s.clock.Now()).Obj())
			},
		},
		"warned-only": {
			rules:   []appsv1alpha1.TransitionRule{enforced(labelled("approved", "approved"), appsv1alpha1.EnforcementWarn)},
			arrange: func(s *harness) { s.put(waits(0).Obj()) },
		},
		"never-passes": {
			rules:   []appsv1alpha1.TransitionRule{atLeast("all", "100%"), atMostUnavailable("one", "1")},
			arrange: func(s *harness) { s.put(waits(0).Obj(), web(1).Obj()) },
		},
		"passes-with-surge": {
			rules: []appsv1alpha1.TransitionRule{atLeast("all", "100%")},
			arrange: func(s *harness) {
				s.put(waits(0).Obj(), web(1).Obj())
				s.index.SetOwner(podindex.Owner{
					UID: "d", Namespace: "default", Kind: "Deployment", Name: "web", Desired: 2, TemplateLabels: web(0).Obj().Labels, Surges: true,
				})
			},
		},
		"compile-error": {
			rules:   []appsv1alpha1.TransitionRule{atMostUnavailable("none", "101%"), labelled("approved", "approved")},
			arrange: func(s *harness) { s.put(waits(0).Label("approved", "yes").Obj()) },
		},
		"evaluation-error": {
			rules:   []appsv1alpha1.TransitionRule{labelled("approved", "approved")},
			arrange: func(s *harness) { s.put(waits(0).Obj()) },
			options: opa.Options{Timeout: 1},
		},
		"selector-error": {
			rules:    []appsv1alpha1.TransitionRule{labelled("approved", "approved")},
			arrange:  func(s *harness) { s.put(waits(0).Obj()) },
			selector: &metav1.LabelSelector{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, tc.options)
			s.rules("web", tc.rules...)
			if tc.selector != nil {
				object := s.object("web").DeepCopy()
				object.ResourceVersion, object.Generation, object.Spec.Selector = s.next(), 2, tc.selector
				s.index.SetRule(object)
			}
			tc.arrange(s)
			s.round()
			if len(s.statuses) != 1 {
				t.Fatalf("%d writes of status, want one", len(s.statuses))
			}
			checkGolden(t, name, s.statuses[0].Status)
		})
	}
}

func checkGolden(t *testing.T, name string, status appsv1alpha1.PodTransitionRuleStatus) {
	t.Helper()
	got, err := yaml.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "status", name+".yaml"), string(got))
}

// TestStatusIsBounded shows that the lists do not grow with the number of pods, but the numbers
// count all.
func TestStatusIsBounded(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", atMostUnavailable("most", "250"), labelled("approved", "approved"))
	for i := range 500 {
		pod := waits(i)
		if i >= 50 {
			pod.Label("approved", "yes")
		}
		s.put(pod.Obj())
	}
	s.round()
	status := s.object("web").Status
	got := []int{
		int(status.Selected), int(status.Available), int(status.Waiting),
		len(status.Targets), len(status.Blocked), len(status.Permits.Reserved), len(s.permitted()),
	}
	want := []int{500, 500, 500, appsv1alpha1.MaxStatusTargets, appsv1alpha1.MaxStatusBlocked, appsv1alpha1.MaxStatusReserved, appsv1alpha1.MaxStatusReserved}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("selected, available, waiting, targets, blocked, reserved, permitted differ (-want +got):\n%s", diff)
	}
	data, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 32<<10 {
		t.Errorf("the status takes %d bytes", len(data))
	}
	// What did not fit into the record follows, up to the bound of the rule.
	s.round()
	if got := len(s.permitted()); got != 50 {
		t.Errorf("the next batch has %d pods, want 50", got)
	}
}

// TestNoStatusWithoutNews shows that a round with the findings of the last round writes nothing.
func TestNoStatusWithoutNews(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", atMostUnavailable("one", "1"), labelled("approved", "approved"))
	s.put(waits(0).Obj(), waits(1).Label("approved", "yes").Obj(), web(2).Unready(s.clock.Now()).Obj())
	s.round()
	if diff := cmp.Diff([]string{"web"}, s.written()); diff != "" {
		t.Errorf("the first round writes (-want +got):\n%s", diff)
	}
	for range 3 {
		if result := s.step(time.Minute); result.RequeueAfter != 0 {
			t.Errorf("comes back after %s for nothing", result.RequeueAfter)
		}
	}
	if diff := cmp.Diff([]string{}, s.written()); diff != "" {
		t.Errorf("later rounds write (-want +got):\n%s", diff)
	}
	if news := s.news; s.step(time.Minute).RequeueAfter != 0 || s.news != news {
		t.Error("a round that changes nothing is news")
	}
}

// TestStatusesAreSpread shows that numbers that change all the time are written at the intervals of pace,
// and the last of them is written in the end.
func TestStatusesAreSpread(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	s.round()
	s.written()
	const rounds, every = 30, 100 * time.Millisecond
	var last time.Duration
	for i := range rounds {
		s.put(web(i).Obj())
		last = s.step(every).RequeueAfter
	}
	if got := len(s.written()); got != 2 {
		t.Errorf("%d writes in 3 seconds, want 2: after 1 and 3 seconds", got)
	}
	if last < 0 || last > longestStatusInterval {
		t.Errorf("comes back after %s", last)
	}
	s.step(last)
	s.step(longestStatusInterval)
	if got := s.object("web").Status.Selected; got != rounds {
		t.Errorf("the status has %d pods in the end, want %d", got, rounds)
	}
}

// TestOneStatusForABatch shows that permits cost one write for each rule with a budget, however
// many pods they are for, and nothing for the others.
func TestOneStatusForABatch(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("a", atMostUnavailable("half", "50%"))
	s.rules("b", atMostUnavailable("forty", "40%"))
	s.rules("c", labelled("approved", "app"))
	for again := true; again; { // human-readable statuses are written one at a time
		again = s.round().RequeueAfter > 0
	}
	s.written()
	for i := range 100 {
		s.put(waits(i).Obj())
	}
	s.rules("c", labelled("approved", "approved"))
	for i := range 50 {
		s.put(waits(i).Label("approved", "yes").Obj())
	}
	s.round()
	if diff := cmp.Diff([]string{"a", "b"}, s.written()); diff != "" {
		t.Errorf("statuses written (-want +got):\n%s", diff)
	}
	if got := len(s.permitted()); got != 40 {
		t.Errorf("%d pods permitted, want 40", got)
	}
	// Seeing the permits costs no more than the numbers in the status.
	for range 5 {
		s.step(every100)
	}
	if got := s.written(); len(got) > 3 {
		t.Errorf("seeing the permits is written as %v", got)
	}
}

const every100 = 100 * time.Millisecond

// TestStatusOfManyErrors shows that a message never outgrows its field, and stays UTF-8.
func TestStatusOfManyErrors(t *testing.T) {
	s := newHarness(t, opa.Options{})
	var rules []appsv1alpha1.TransitionRule
	for i := range 64 {
		rules = append(rules, atMostUnavailable(fmt.Sprintf("größte-%02d", i), "0"))
	}
	s.rules("web", rules...)
	s.round()
	for _, condition := range s.object("web").Status.Conditions {
		if len(condition.Message) > maxConditionBytes {
			t.Errorf("message of %s takes %d bytes", condition.Type, len(condition.Message))
		}
	}
}
