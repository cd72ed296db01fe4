package podindex_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// TestMinReadySeconds has a StatefulSet of two pods that must be Ready for 15 seconds.
func TestMinReadySeconds(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner := workload("sts", "", 2)
	owner.MinReady = 15 * time.Second
	pod := func(name string, ready time.Time) *corev1.Pod {
		pod := member(name, "sts").Obj()
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(ready)
		}
		return pod
	}
	for _, ownerLast := range []bool{false, true} {
		x := newIndex(t)
		rule := x.rule("r")
		x.SetRule(rule)
		if !ownerLast {
			x.SetOwner(owner)
		}
		x.put(pod("a", start.Add(-time.Hour)))
		version := x.put(pod("b", start))
		x.SetOwner(owner)
		step := func(what string, after time.Duration, available int, ripens time.Duration) {
			t.Helper()
			x.Expire(start.Add(after))
			if got := x.only().Counts; got.Available != available || got.Reserved != 0 || got.Desired != 2 {
				t.Errorf("%s: %+v, want %d available of 2", what, got, available)
			}
			next := x.Snapshot("default", nil).Ripens
			if ripens == 0 && !next.IsZero() || ripens > 0 && !next.Equal(start.Add(ripens)) {
				t.Errorf("%s: the counts change at %s", what, next)
			}
		}
		step("it has become Ready", 0, 1, 15*time.Second)
		reserved := rule.DeepCopy()
		reserved.ResourceVersion = x.next()
		reserved.Status.Permits = &appsv1alpha1.PermitRecord{Reserved: []appsv1alpha1.ReservedPod{{UID: pod("b", start).UID, Name: "b", ResourceVersion: version}}}
		x.SetRule(reserved)
		step("its permit is recorded, and it counts once", 0, 1, 15*time.Second)
		rule.ResourceVersion = x.next()
		x.SetRule(rule)
		step("a moment before", 15*time.Second-1, 1, 15*time.Second)
		step("it is available", 15*time.Second, 2, 0)
		x.put(pod("b", start))
		step("it changes", 16*time.Second, 2, 0)
		x.put(pod("b", start.Add(20*time.Second)))
		step("it was unready for a moment", 20*time.Second, 1, 35*time.Second)
		longer := owner
		longer.MinReady = time.Minute
		x.SetOwner(longer)
		step("the number is raised", 36*time.Second, 1, 80*time.Second)
		none := owner
		none.MinReady = 0
		x.SetOwner(none)
		step("the number is removed", 36*time.Second, 2, 0)
		x.SetOwner(owner)
		x.put(pod("b", start.Add(40*time.Second)))
		x.remove(pod("b", start))
		step("it is gone", 41*time.Second, 1, 0)
	}
}
