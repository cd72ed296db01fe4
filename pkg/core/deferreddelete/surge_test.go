package deferreddelete_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
)

func TestSurges(t *testing.T) {
	deployment := func(kind appsv1.DeploymentStrategyType, maxSurge *intstr.IntOrString) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{
			Type: kind, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: maxSurge},
		}}}
	}
	daemons := func(maxSurge *intstr.IntOrString) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: maxSurge},
		}}}
	}
	for name, test := range map[string]struct {
		workload metav1.Object
		want     bool
	}{
		"a Deployment by default":               {&appsv1.Deployment{}, true},
		"a Deployment without maxSurge":         {deployment(appsv1.RollingUpdateDeploymentStrategyType, nil), true},
		"a Deployment with 1 %":                 {deployment(appsv1.RollingUpdateDeploymentStrategyType, new(intstr.FromString("1%"))), true},
		"a Deployment with 0":                   {deployment(appsv1.RollingUpdateDeploymentStrategyType, new(intstr.FromInt32(0))), false},
		"a Deployment with 0 %":                 {deployment(appsv1.RollingUpdateDeploymentStrategyType, new(intstr.FromString("0%"))), false},
		"a Deployment of the strategy Recreate": {deployment(appsv1.RecreateDeploymentStrategyType, nil), false},
		"a DaemonSet by default":                {&appsv1.DaemonSet{}, false},
		"a DaemonSet without maxSurge":          {daemons(nil), false},
		"a DaemonSet with 1":                    {daemons(new(intstr.FromInt32(1))), true},
		"a StatefulSet":                         {&appsv1.StatefulSet{}, false},
	} {
		if got := deferreddelete.Surges(test.workload); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
