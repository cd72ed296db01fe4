package podtransitionrule

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/podindex"
)

// TestAPodThatIsNeededAgainIsNotPermitted shows that the approval of pods that were to go takes none of them off traffic once
// their ReplicaSet has been scaled out again.
func TestAPodThatIsNeededAgainIsNotPermitted(t *testing.T) {
	set := podindex.Owner{UID: "r", Namespace: "default", Kind: "ReplicaSet", Name: "web-1", Revision: 1, Controller: "d", Desired: 1, Observed: 1}
	newer := podindex.Owner{UID: "n", Namespace: "default", Kind: "ReplicaSet", Name: "web-2", Revision: 2, Controller: "d"}
	for name, tc := range map[string]struct {
		change    func(set *podindex.Owner, pod *corev1.Pod)
		newer     bool
		permitted bool
	}{
		"it needs its pods":                            {change: func(*podindex.Owner, *corev1.Pod) {}},
		"it has one too many":                          {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Desired = 0 }, permitted: true},
		"one of its pods is not under PodOps":          {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Observed = 2 }, permitted: true},
		"it has an older revision":                     {change: func(*podindex.Owner, *corev1.Pod) {}, newer: true, permitted: true},
		"it is terminating":                            {change: func(set *podindex.Owner, _ *corev1.Pod) { set.Terminating = true }, permitted: true},
		"another controller has begun the deletion":    {change: func(_ *podindex.Owner, pod *corev1.Pod) { pod.Annotations = nil }, permitted: true},
		"the pod has got another controller meanwhile": {change: func(_ *podindex.Owner, pod *corev1.Pod) { pod.OwnerReferences = nil }, permitted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, owner := newHarness(t, opa.Options{}), set
			s.rules("web", labelled("approved", "approved"))
			pod := web(0).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, s.clock.Now()).Obj()
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
			pod.Annotations = map[string]string{appsv1alpha1.PreviousDeletionCostAnnotationKey: ""}
			tc.change(&owner, pod)
			s.index.SetOwner(owner)
			if tc.newer {
				s.index.SetOwner(newer)
			}
			s.put(pod)
			relabel(s, pod.Name, "approved", "yes")
			s.step(time.Second)
			if tc.permitted {
				s.expectPermitted("at once", pod.Name)
				return
			}
			s.expectPermitted("at once")
			owner.Desired = 0
			s.index.SetOwner(owner)
			s.step(time.Second)
			s.expectPermitted("once it has one too many", pod.Name)
		})
	}
}
