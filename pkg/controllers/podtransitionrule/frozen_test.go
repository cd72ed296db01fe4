package podtransitionrule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestAFreezeOfTheClusterWithholdsEveryPod also pods that no rule selects, until it is ended or its time has passed; break-glass passes.
func TestAFreezeOfTheClusterWithholdsEveryPod(t *testing.T) {
	for name, tc := range map[string]struct {
		freeze rule.Freeze
		ends   func(*harness)
	}{
		"until it is ended": {rule.Freeze{Message: "frozen by jane: INC-1"}, func(s *harness) { s.index.SetFreeze(rule.Freeze{}) }},
		"for a time": {
			rule.Freeze{Message: "frozen by jane: INC-1", Until: time.Unix(1<<40, 0)},
			func(s *harness) {
				s.index.SetFreeze(rule.Freeze{Message: "frozen by jane: INC-1", Until: s.reconciler.clock.Now().Add(time.Second)})
				s.step(2 * time.Second)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", atMostUnavailable("most", "100%"))
			s.index.SetFreeze(tc.freeze)
			s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Label("app", "other").Obj(),
				waits(3).Annotation(appsv1alpha1.BreakGlassAnnotationKey, "INC-2").Obj())
			s.step(time.Second)
			if diff := cmp.Diff([]string{"web-003"}, s.permitted()); diff != "" {
				t.Errorf("permitted (-want +got):\n%s", diff)
			}
			frozen := meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionFrozen)
			if frozen == nil || frozen.Message != "no pod gets a permit: frozen by jane: INC-1" {
				t.Errorf("condition %+v", frozen)
			}
			s.news = 0
			tc.ends(s)
			if s.news == 0 {
				t.Error("no round is queued")
			}
			s.step(time.Second)
			if diff := cmp.Diff([]string{"web-000", "web-001", "web-002"}, s.permitted()); diff != "" {
				t.Errorf("permitted at its end (-want +got):\n%s", diff)
			}
			if meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionFrozen) != nil {
				t.Error("the condition is left")
			}
		})
	}
}
