package podtransitionrule

import (
	"testing"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestSelecting shows that a selector with a typing error is no different from others but for the pods.
func TestSelecting(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	selecting := func() string {
		t.Helper()
		for _, condition := range s.object("web").Status.Conditions {
			if condition.Type == appsv1alpha1.ConditionSelecting {
				return string(condition.Status) + " " + condition.Reason
			}
		}
		return ""
	}
	s.step(time.Second)
	if got := selecting(); got != "False NoPodSelected" {
		t.Errorf("without pods: %s", got)
	}
	s.put(web(0).Obj())
	s.step(2 * statusInterval)
	if got := selecting(); got != "True PodsSelected" {
		t.Errorf("with a pod: %s", got)
	}
}
