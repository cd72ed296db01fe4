package podtransitionrule

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// request requests the removal of a pod at this time, as the webhook does for a client.
func request(s *harness, pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	by := deferreddelete.Request{Method: deferreddelete.MethodEviction, Actor: deferreddelete.ActorEvictor, User: "jane"}
	record, ok := by.Join(pod, s.clock.Now())
	if _, pending := deferreddelete.Pending(pod); !pending {
		record, ok = by.Begin(pod, deferreddelete.Begun(pod)), true
	}
	if !ok {
		s.t.Fatalf("the request for %s is not recorded", pod.Name)
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(record)
	s.put(pod)
	return pod
}

// requested returns a pod whose removal a client requests at this time.
func requested(s *harness, i int) *corev1.Pod {
	return request(s, web(i).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now()).Obj())
}

// TestAPodIsPermittedWhileItsClientWaits shows that the approval of a pod whose client was answered that a rule withholds it takes it off
// traffic once the client repeats the request, and not before.
func TestAPodIsPermittedWhileItsClientWaits(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	requested(s, 0)
	s.step(time.Second)
	if by := podstate.WithheldBy(s.pods["web-000"].Annotations); len(by) != 1 {
		t.Fatalf("the pod is withheld by %v, want the rule", by)
	}
	relabel(s, "web-000", "approved", "yes")
	for range 3 {
		s.step(time.Second)
		s.expectPermitted("while no client waits")
	}
	pod := s.pods["web-000"].DeepCopy()
	if by := podstate.WithheldBy(pod.Annotations); len(by) > 0 {
		t.Errorf("the pod is withheld by %v, want no rule", by)
	}
	request(s, pod)
	s.step(time.Second)
	s.expectPermitted("once its client waits again", "web-000")
}

// TestAnAbsentClientKeepsItsPlace shows that the pod whose client was refused first keeps its slot until it is requested again, and
// that the pod that is requested meanwhile waits.
func TestAnAbsentClientKeepsItsPlace(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"), appsv1alpha1.TransitionRule{
		Name: "one", AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: new(intstr.FromInt32(1))},
	})
	requested(s, 0)
	s.step(time.Second)
	relabel(s, "web-000", "approved", "yes")
	s.step(time.Second)
	s.put(web(1).Label("approved", "yes").Obj())
	s.step(time.Second)
	second := web(1).Label("approved", "yes").Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now()).Obj()
	request(s, second)
	s.step(time.Second)
	s.expectPermitted("while the client of the first is away")
	request(s, s.pods["web-000"].DeepCopy())
	s.step(time.Second)
	s.expectPermitted("once it waits again", "web-000")
}
