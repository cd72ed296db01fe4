package deferreddelete

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Surges reports whether a rollout of a Deployment or a DaemonSet creates pods beyond the desired number; false for other kinds. A
// rollout of a Deployment without maxSurge does, since its default is 25 %.
func Surges(workload metav1.Object) bool {
	switch w := workload.(type) {
	case *appsv1.Deployment:
		rolling := w.Spec.Strategy.RollingUpdate
		return w.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType && (rolling == nil || rolling.MaxSurge == nil || isPositive(rolling.MaxSurge))
	case *appsv1.DaemonSet:
		rolling := w.Spec.UpdateStrategy.RollingUpdate
		return rolling != nil && isPositive(rolling.MaxSurge)
	default:
		return false
	}
}
