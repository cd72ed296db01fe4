package deferreddelete

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMayLose(t *testing.T) {
	onDelete, misscheduled := bound(intstr.FromInt32(1)), bound(intstr.FromInt32(1))
	several := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(10)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromString("20%"))},
	}}}
	onDelete.Spec.UpdateStrategy.RollingUpdate, misscheduled.Status.NumberMisscheduled = nil, 1
	for name, tc := range map[string]struct {
		owner       Owner
		unavailable int
		want        bool
	}{
		"all pods are available":                        {bound(intstr.FromInt32(1)), 0, true},
		"a pod is unavailable":                          {bound(intstr.FromInt32(1)), 1, false},
		"two may be unavailable":                        {bound(intstr.FromInt32(2)), 1, true},
		"a percentage is rounded up":                    {bound(intstr.FromString("26%")), 1, true},
		"users delete its pods":                         {onDelete, 3, true},
		"pods are on nodes that it does not select now": {misscheduled, 1, true},
		"a pod of a StatefulSet":                        {&appsv1.StatefulSet{}, 0, true},
		"a second pod of a StatefulSet":                 {&appsv1.StatefulSet{}, 1, false},
		"a StatefulSet with maxUnavailable":             {several, 1, true},
		"a StatefulSet with as many unavailable pods":   {several, 2, false},
	} {
		if got := MayLose(tc.owner, tc.unavailable); got != tc.want {
			t.Errorf("%s: may lose a pod: %t, want %t", name, got, tc.want)
		}
	}
}
