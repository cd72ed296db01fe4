package replicasetscale

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// deploymentReplicasAnnotationKey is the annotation in which the controller of Deployments records
// spec.replicas of the Deployment on its ReplicaSets. A ReplicaSet with another number than its Deployment means
// a change of scale to it.
const deploymentReplicasAnnotationKey = "deployment.kubernetes.io/desired-replicas"

// Replicas returns a number of replicas, with the default of the API server.
func Replicas(replicas *int32) int {
	if replicas == nil {
		return 1
	}
	return int(*replicas)
}

// IsControlled reports whether the pods of the ReplicaSet's template are under PodOps.
func IsControlled(set *appsv1.ReplicaSet) bool {
	return appsv1alpha1.IsControlled(set.Spec.Template.Labels)
}

// Annotations returns the keys of PodOps' annotations on ReplicaSets: that of a wake, and those in which
// earlier versions recorded requests that admission kept.
func Annotations() []string {
	return []string{
		appsv1alpha1.WokenAnnotationKey, appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey,
	}
}

// HasAnnotations reports whether the ReplicaSet has an annotation of PodOps.
func HasAnnotations(set *appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(Annotations(), func(key string) bool {
		_, present := set.Annotations[key]
		return present
	})
}

// Kept returns the number of replicas that admission answers a step of a rolling update with. ungranted is the
// number of active pods that have not been granted operate: the ReplicaSet controller deletes none of them.
func Kept(replicas, requested, ungranted int) int {
	return min(replicas, max(requested, ungranted))
}

// Workload is the controller of a ReplicaSet. The zero value is that of a ReplicaSet alone, or under a controller
// that Kubernetes does not have.
type Workload struct {
	// Deployment is nil for a ReplicaSet alone.
	Deployment *appsv1.Deployment

	// Sets are the ReplicaSets of the Deployment, in any order.
	Sets []*appsv1.ReplicaSet

	// Pods are the controlled pods of all ReplicaSets, also where one is alone; nil where the status alone decides.
	Pods []*corev1.Pod
}

// available returns how many available pods a ReplicaSet has: by its status, and at most as many as its pods show, since either
// may be behind.
func (w Workload) available(set *appsv1.ReplicaSet) int {
	available := int(set.Status.AvailableReplicas)
	if available == 0 || w.Pods == nil {
		return available
	}
	var pods []*corev1.Pod
	serving := 0
	for _, pod := range w.Pods {
		if !metav1.IsControlledBy(pod, set) {
			continue
		}
		pods = append(pods, pod)
		if IsActive(pod) && serves(pod) {
			serving++
		}
	}
	return min(available, serving+Others(set, pods))
}

// serves reports whether a pod is Ready and stays so: the kubelet has yet to see a gate that was set to False.
func serves(pod *corev1.Pod) bool {
	return isReady(pod) && !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == appsv1alpha1.ServiceReadyGate && condition.Status == corev1.ConditionFalse
	})
}

// isRolling reports whether a Deployment replaces pods in rolling updates.
func isRolling(deployment *appsv1.Deployment) bool {
	return deployment != nil && deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
}

// IsRolloutStep reports whether a request lowers a ReplicaSet in a rolling update of its Deployment, nil if it has none:
//   - the Deployment replaces pods by the strategy RollingUpdate,
//   - the ReplicaSet is not the newest one,
//   - the Deployment itself is not scaled: a change of scale changes the annotation
//     deployment.kubernetes.io/desired-replicas in the same request. Were the number kept then, the
//     controller of Deployments would find the annotation of a scale that the ReplicaSet does not have, and
//     take every later step for a change of scale.
func IsRolloutStep(deployment *appsv1.Deployment, old, requested *appsv1.ReplicaSet) bool {
	return isRolling(deployment) && !IsNewest(old, deployment) && isUnscaled(old, requested)
}

// MayBeRolloutStep reports whether a request is a step of a rolling update unless the ReplicaSet is the newest one, as it is by this
// version of its Deployment: a later version may have a higher revision.
func MayBeRolloutStep(deployment *appsv1.Deployment, old, requested *appsv1.ReplicaSet) bool {
	return isRolling(deployment) && IsNewest(old, deployment) && isUnscaled(old, requested)
}

// isUnscaled reports whether the Deployment is not scaled by a request.
func isUnscaled(old, requested *appsv1.ReplicaSet) bool {
	return old.Annotations[deploymentReplicasAnnotationKey] == requested.Annotations[deploymentReplicasAnnotationKey]
}

// Others returns how many of a ReplicaSet's pods do not have the control label; pods are its pods with the label.
// A ReplicaSet with other pods is never kept: they depend on no rule. The status may be behind pods that terminate, so where the
// template has the label both numbers must say so: status.replicas and status.fullyLabeledReplicas.
func Others(set *appsv1.ReplicaSet, pods []*corev1.Pod) int {
	others, controlled := int(set.Status.Replicas), IsControlled(set)
	for _, pod := range pods {
		if IsActive(pod) || pod.DeletionTimestamp != nil && !controlled {
			others--
		}
	}
	if controlled {
		others = min(others, int(set.Status.Replicas-set.Status.FullyLabeledReplicas))
	}
	return max(0, others)
}

// Target returns the number of replicas that a ReplicaSet is to have now: spec.replicas, or less for an old
// ReplicaSet in a rolling update, as many as the next step of the Deployment controller leaves it. The step
// removes as many pods of old ReplicaSets as there are beyond the replicas of the Deployment without its
// maxUnavailable, where pods of the newest ReplicaSet count once they are available: unavailable pods first, and those
// of older ReplicaSets first. For the newest ReplicaSet it is more if that has available pods beyond spec.replicas, and too
// few pods would be available without them. An old ReplicaSet keeps no such pods: while it has any, the controller of
// Deployments takes no step. Where the Deployment is paused, its controller still lowers old ReplicaSets to 0 once the newest
// has all pods, and takes no other step.
func (w Workload) Target(set *appsv1.ReplicaSet) int {
	own := Replicas(set.Spec.Replicas)
	newest := w.Newest()
	switch {
	case newest == nil || !isRolling(w.Deployment) || w.Deployment.DeletionTimestamp != nil:
		return own
	case w.Deployment.Spec.Paused && set.UID != newest.UID && w.isSaturated(newest):
		return 0
	case w.Deployment.Spec.Paused:
		return own
	}
	least := Replicas(w.Deployment.Spec.Replicas) - maxUnavailable(w.Deployment)
	total := 0
	for _, sibling := range w.Sets {
		total += Replicas(sibling.Spec.Replicas)
	}
	// The newest ReplicaSet may have more pods than replicas: some are held, and go once they may.
	starting := max(0, Replicas(newest.Spec.Replicas)-w.available(newest))
	left := total - starting - least
	removed, old := map[types.UID]int{}, w.old(newest)
	remove := func(sibling *appsv1.ReplicaSet, most int) {
		count := max(0, min(left, most))
		removed[sibling.UID] += count
		left -= count
	}
	for _, sibling := range old {
		remove(sibling, Replicas(sibling.Spec.Replicas)-w.available(sibling))
	}
	for _, sibling := range old {
		remove(sibling, Replicas(sibling.Spec.Replicas)-removed[sibling.UID])
	}
	if set.UID != newest.UID {
		return own - removed[set.UID]
	}
	missing := least - own
	for _, sibling := range old {
		missing -= min(w.available(sibling), Replicas(sibling.Spec.Replicas)-removed[sibling.UID])
	}
	return own + max(0, min(missing, w.available(newest)-own))
}

// isSaturated reports whether the newest ReplicaSet has all pods of the Deployment, which are available.
func (w Workload) isSaturated(newest *appsv1.ReplicaSet) bool {
	all := Replicas(w.Deployment.Spec.Replicas)
	return newest.Annotations[deploymentReplicasAnnotationKey] == strconv.Itoa(all) &&
		Replicas(newest.Spec.Replicas) == all && int(newest.Status.AvailableReplicas) == all
}

// Newest returns the ReplicaSet with the highest revision; nil before the Deployment has one of its own revision.
func (w Workload) Newest() (newest *appsv1.ReplicaSet) {
	for _, set := range w.Sets {
		if w.Deployment != nil && IsNewest(set, w.Deployment) && (newest == nil || parseRevision(set) > parseRevision(newest)) {
			newest = set
		}
	}
	return newest
}

// old returns the other ReplicaSets, oldest first as the controller of Deployments lowers them.
func (w Workload) old(newest *appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	old := slices.DeleteFunc(slices.Clone(w.Sets), func(set *appsv1.ReplicaSet) bool { return set.UID == newest.UID })
	slices.SortFunc(old, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return old
}

// maxUnavailable returns how many pods of a Deployment may be unavailable in a rolling update: percentages are of
// its replicas, rounded down, and one if neither it nor maxSurge is a pod.
func maxUnavailable(deployment *appsv1.Deployment) int {
	rolling, replicas := deployment.Spec.Strategy.RollingUpdate, Replicas(deployment.Spec.Replicas)
	if rolling == nil || replicas == 0 {
		return 0
	}
	unavailable, surge := Scaled(rolling.MaxUnavailable, replicas, false), Scaled(rolling.MaxSurge, replicas, true)
	if unavailable == 0 && surge == 0 {
		return 1
	}
	return min(unavailable, replicas)
}

// Scaled returns a number of pods, or a percentage of so many; 0 if it is not set or malformed.
func Scaled(value *intstr.IntOrString, of int, roundUp bool) int {
	if value == nil {
		return 0
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, of, roundUp)
	if err != nil {
		return 0
	}
	return number
}

// IsNewest reports whether no ReplicaSet of the Deployment has a higher revision. The controller
// of Deployments gives a ReplicaSet its revision before it copies that to the Deployment.
func IsNewest(set *appsv1.ReplicaSet, deployment *appsv1.Deployment) bool {
	own := parseRevision(set)
	return own > 0 && own >= parseRevision(deployment)
}

// parseRevision returns the revision of a Deployment or a ReplicaSet; 0 without one.
func parseRevision(object metav1.Object) int64 {
	revision, err := strconv.ParseInt(object.GetAnnotations()[appsv1alpha1.DeploymentRevisionAnnotationKey], 10, 64)
	if err != nil {
		return 0
	}
	return revision
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
