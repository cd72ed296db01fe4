package replicasetscale

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// deploymentReplicasAnnotationKey is the annotation in which the controller of Deployments records
// spec.replicas of the Deployment on its ReplicaSets. A ReplicaSet with another number than its Deployment means
// a change of scale to it.
const deploymentReplicasAnnotationKey = "deployment.kubernetes.io/desired-replicas"

// Scale is the part of a ReplicaSet that decides about its number of pods.
type Scale struct {
	// Replicas is spec.replicas.
	Replicas int

	// Demand is the number that was requested and kept; nil without a kept request.
	Demand *int
}

// ScaleOf returns the scale of a ReplicaSet. An annotation that is not a number of replicas below
// spec.replicas is no demand.
func ScaleOf(set *appsv1.ReplicaSet) Scale {
	scale := Scale{Replicas: ReplicasOf(set.Spec.Replicas)}
	if demand, ok := parse(set.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey]); ok && demand < scale.Replicas {
		scale.Demand = &demand
	}
	return scale
}

// ReplicasOf returns a number of replicas, with the default of the API server.
func ReplicasOf(replicas *int32) int {
	if replicas == nil {
		return 1
	}
	return int(*replicas)
}

func parse(text string) (replicas int, ok bool) {
	number, err := strconv.ParseUint(text, 10, 31)
	return int(number), err == nil
}

// IsControlled reports whether the pods of the ReplicaSet's template are under PodOps.
func IsControlled(set *appsv1.ReplicaSet) bool {
	return appsv1alpha1.IsControlled(set.Spec.Template.Labels)
}

// HasAnnotations reports whether the ReplicaSet has an annotation of this package.
func HasAnnotations(set *appsv1.ReplicaSet) bool {
	_, desired := set.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey]
	_, lowest := set.Annotations[appsv1alpha1.LowestReplicasAnnotationKey]
	return desired || lowest
}

// Request returns the scale that follows from a step of a rollout. ungranted is the number of active pods
// that have not been granted operate. The controller of Deployments, as it cleans up an old ReplicaSet,
// requests in turn to remove its unready pods and to remove more: the lowest counts, or each of the two
// would replace the other for as long as a pod is unready.
func (s Scale) Request(requested, ungranted int) Scale {
	switch {
	case requested == s.Replicas:
		return s
	case requested > s.Replicas:
		return Scale{Replicas: requested}
	}
	kept, demand := lowest(s.Replicas, requested, ungranted), requested
	if s.Demand != nil {
		demand = min(demand, *s.Demand)
	}
	if kept == demand {
		return Scale{Replicas: kept}
	}
	return Scale{Replicas: kept, Demand: &demand}
}

// lowest returns the lowest number of replicas between requested and replicas at which the
// ReplicaSet controller deletes no ungranted pod.
func lowest(replicas, requested, ungranted int) int {
	return min(replicas, max(requested, ungranted))
}

// Workload is the controller of a ReplicaSet.
type Workload struct {
	// Deployment is nil for a ReplicaSet alone.
	Deployment *appsv1.Deployment

	// Total is the sum of spec.replicas of the ReplicaSets of a Deployment that is paused.
	Total int
}

// IsRolloutStep reports whether a request lowers a ReplicaSet in a rolling update of its Deployment:
//   - the Deployment replaces pods by the strategy RollingUpdate,
//   - the ReplicaSet is not the newest one,
//   - the Deployment itself is not scaled: a change of scale changes the annotation
//     deployment.kubernetes.io/desired-replicas in the same request. Were the number kept then, the
//     controller of Deployments would find the annotation of a scale that the ReplicaSet does not have, and
//     take every later step for a change of scale.
func (w Workload) IsRolloutStep(old, requested *appsv1.ReplicaSet) bool {
	return w.Deployment != nil &&
		w.Deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType &&
		!IsNewest(old, w.Deployment) &&
		old.Annotations[deploymentReplicasAnnotationKey] == requested.Annotations[deploymentReplicasAnnotationKey]
}

// IsUniform reports whether all pods of a ReplicaSet have the control label. pods are the controlled ones. A
// ReplicaSet with other pods is never kept: they depend on no rule. Terminating pods count, since the status may
// be behind them.
func IsUniform(set *appsv1.ReplicaSet, pods []*corev1.Pod) bool {
	return len(pods) >= int(set.Status.Replicas)
}

// Desired returns the number of pods that the ReplicaSet is to have: the demand, if any. The
// controller of Deployments does not write a ReplicaSet whose kept number is the number that it
// needs, so it withdraws a demand without a write:
//   - when the Deployment is rolled back: the newest ReplicaSet has no demand;
//   - when its strategy becomes Recreate, its controller requests 0 again;
//   - when the Deployment is paused: older ReplicaSets have no demand while all of them together
//     are no larger than replicas + maxSurge.
func (s Scale) Desired(set *appsv1.ReplicaSet, workload Workload) int {
	deployment := workload.Deployment
	switch {
	case s.Demand == nil, deployment == nil, deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType, IsNewest(set, deployment):
		return s.Replicas
	case deployment.Spec.Paused && workload.Total <= ReplicasOf(deployment.Spec.Replicas)+maxSurge(deployment):
		return s.Replicas
	default:
		return *s.Demand
	}
}

// maxSurge returns how many pods a Deployment may have beyond its replicas.
func maxSurge(deployment *appsv1.Deployment) int {
	rolling := deployment.Spec.Strategy.RollingUpdate
	if deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || rolling == nil || rolling.MaxSurge == nil {
		return 0
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, ReplicasOf(deployment.Spec.Replicas), true)
	if err != nil {
		return 0
	}
	return surge
}

// IsNewest reports whether no ReplicaSet of the Deployment has a higher revision. The controller
// of Deployments gives a ReplicaSet its revision before it copies that to the Deployment.
func IsNewest(set *appsv1.ReplicaSet, deployment *appsv1.Deployment) bool {
	own, err := strconv.ParseInt(set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
	if err != nil {
		return false
	}
	newest, err := strconv.ParseInt(deployment.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
	return err != nil || own >= newest
}

// Lowest returns how far the ReplicaSet may be lowered now towards the desired number.
func (s Scale) Lowest(desired int, pods []*corev1.Pod) int {
	return lowest(s.Replicas, desired, Ungranted(pods))
}

// Ungranted returns the number of active pods that have not been granted operate for their deletion.
func Ungranted(pods []*corev1.Pod) int {
	count := 0
	for _, pod := range pods {
		if IsActive(pod) && !IsGranted(pod) {
			count++
		}
	}
	return count
}

// IsGranted reports whether the pod was granted operate for its deletion.
func IsGranted(pod *corev1.Pod) bool {
	_, granted := pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return granted
}

// IsActive reports whether controllers count the pod: it is neither finished nor terminating.
func IsActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
