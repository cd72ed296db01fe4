package podtransitionrule

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/test/builders"
)

// TestPodsThatCannotBeGuardedShowAsACondition until they are gone.
func TestPodsThatCannotBeGuardedShowAsACondition(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	condition := func() *metav1.Condition {
		s.step(time.Minute)
		return meta.FindStatusCondition(s.object("web").Status.Conditions, appsv1alpha1.ConditionGuarded)
	}
	s.put(web(0).Obj())
	if got := condition(); got != nil {
		t.Errorf("with a guarded pod: %+v", got)
	}
	s.put(web(1).Gateless().Obj())
	got := condition()
	if got == nil || got.Status != metav1.ConditionFalse || got.Reason != appsv1alpha1.ReasonGateMissing ||
		!strings.Contains(got.Message, "1 pods without the readiness gate") || !strings.HasSuffix(got.Message, ": web-001") {
		t.Errorf("with a pod without the gate: %+v", got)
	}
	s.put(web(1).Gateless().Terminating(builders.Epoch).Obj(), web(2).Annotation(corev1.MirrorPodAnnotationKey, "x").Obj())
	if got := condition(); got == nil || got.Reason != appsv1alpha1.ReasonMirrorPods || !strings.HasSuffix(got.Message, ": web-002") {
		t.Errorf("with a mirror pod: %+v", got)
	}
	s.written()
	if got, written := condition(), s.written(); got == nil || len(written) > 0 {
		t.Errorf("the status is written again, or the condition is gone: %+v, %v", got, written)
	}
	for i := range 20 {
		s.put(web(100 + i).Gateless().Obj())
	}
	if got := condition(); got == nil || !strings.HasSuffix(got.Message, ": web-002, web-100, web-101, web-102, web-103 and 16 more") {
		t.Errorf("with many: %+v", got)
	}
	for name, pod := range s.pods {
		if name != "web-000" {
			s.must(s.store.Delete(pod))
		}
	}
	if got := condition(); got != nil {
		t.Errorf("without them: %+v", got)
	}
}
