package world

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/test/world/apiserver"
)

// mirror has every object as the API server has it, by resource, and by namespace and name.
type mirror map[string]map[string]runtime.Object

func (m mirror) apply(write apiserver.Write) {
	if write.Before == nil && write.After == nil {
		return
	}
	of, ok := m[write.Resource]
	if !ok {
		of = map[string]runtime.Object{}
		m[write.Resource] = of
	}
	key := write.Namespace + "/" + write.Name
	if write.After == nil {
		delete(of, key)
		return
	}
	of[key] = write.After
}

// get returns an object; nil if it does not exist.
func (m mirror) get(resource, namespace, name string) runtime.Object {
	return m[resource][namespace+"/"+name]
}

// terminates reports whether a namespace is being deleted.
func (m mirror) terminates(namespace string) bool {
	object, ok := m.get("namespaces", "", namespace).(*corev1.Namespace)
	return ok && object.DeletionTimestamp != nil
}

// active returns the active pods that a function selects.
func (m mirror) active(selects func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range m["pods"] {
		if pod := object.(*corev1.Pod); isActive(pod) && selects(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// floor returns the lowest number that a list had recently, and at least the last.
func floor(list []dated, now time.Time) int {
	if len(list) == 0 {
		return 0
	}
	lowest := list[len(list)-1].n
	for i := len(list) - 2; i >= 0; i-- {
		if now.Sub(list[i+1].at) > recently {
			break
		}
		lowest = min(lowest, list[i].n)
	}
	return lowest
}

// isSettled reports whether a list did not change recently.
func isSettled(list []dated, now time.Time) bool {
	return len(list) == 0 || now.Sub(list[len(list)-1].at) > recently
}

// isWanted returns why the owner of a pod wants it, before it is removed; empty if the owner wants it removed, or if the
// laws do not know.
func (l *laws) isWanted(on Workload, pod *corev1.Pod) string {
	wish := l.world.wished(on.Name)
	controller := metav1.GetControllerOf(pod)
	if wish.gone || controller == nil || on.Name == "" { // a pod that was released has no workload
		if wish.orphaned && isSettled(l.wished[on.Name], time.Now()) {
			return l.orphaned(pod, controller)
		}
		return ""
	}
	if !isTrue(pod, corev1.ContainersReady) {
		return "" // a removal of a broken pod may be a repair
	}
	switch on.Kind {
	case DaemonSet:
		return l.daemonSetWants(on, pod)
	case Job:
		return l.jobWants(on)
	case Group, Rollout:
		return ""
	default:
		return l.numberWants(on, pod)
	}
}

// twice returns how many more pods go than their owner wants when two managers lead at once: each may begin another pod.
func (l *laws) twice() int {
	if l.world.schedule.BothLead {
		return 1
	}
	return 0
}

// orphaned returns why a pod of a workload that was deleted without its pods stays. The ReplicaSet of a Deployment may stay, and have
// more pods than it is to have.
func (l *laws) orphaned(pod *corev1.Pod, controller *metav1.OwnerReference) string {
	if controller != nil && controller.Kind == string(ReplicaSet) {
		set, ok := l.mirror.get("replicasets", pod.Namespace, controller.Name).(*appsv1.ReplicaSet)
		if ok && set.UID == controller.UID && l.remaining(pod, func(other *corev1.Pod) bool { return metav1.IsControlledBy(other, set) }) >= int(*set.Spec.Replicas) {
			return ""
		}
	}
	return "its owner was deleted without its pods"
}

// remaining returns the number of pods that a function selects and that are left once a pod is gone, without pods that leave. A pod
// that a client has requested stays until its request is repeated, which the owner cannot know.
func (l *laws) remaining(pod *corev1.Pod, selects func(*corev1.Pod) bool) int {
	return len(l.mirror.active(func(other *corev1.Pod) bool {
		leaves := isControlled(other) && hasGate(other) && !isTrue(other, appsv1alpha1.ServiceReadyGate) && isTrue(other, corev1.ContainersReady) &&
			!l.isRequested(other)
		return other.UID != pod.UID && other.Namespace == pod.Namespace && !leaves && selects(other)
	}))
}

// isRequested reports whether a client has requested a pod lately.
func (l *laws) isRequested(pod *corev1.Pod) bool {
	return time.Since(l.facts(pod).requested) < requested || clientWaits(pod)
}

// clientWaits reports whether the request of a client for a pod waits in admission, or may be repeated.
func clientWaits(pod *corev1.Pod) bool {
	record := appsv1alpha1.PendingDelete{}
	err := json.Unmarshal([]byte(pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]), &record)
	return err == nil && (record.Actor == string(deferreddelete.ActorEvictor) || record.Actor == string(deferreddelete.ActorClient))
}

// numberWants returns why a workload with a number of replicas wants a pod.
func (l *laws) numberWants(on Workload, pod *corev1.Pod) string {
	now := time.Now()
	after := l.remaining(pod, func(other *corev1.Pod) bool { return other.Labels[app] == on.Name })
	after += countFunc(l.evicted[on.Name], func(at time.Time) bool { return now.Sub(at) < late }) // the controller may not have seen it
	least := floor(l.wished[on.Name], now) + l.world.schedule.Strict
	switch {
	case on.Kind == ReplicaSet || l.isCurrent(on, pod) && !l.rollsOut(on, pod): // the number is all that the owner wants
	case l.wasOld(on, pod, now):
		return ""
	case on.Kind == Deployment:
		least -= l.unavailable(on, least)
	default:
		least--
	}
	if least -= l.twice(); after >= least {
		return ""
	}
	return fmt.Sprintf("%d pods are left of the %d that are wanted", after, least)
}

// wasOld reports whether a pod has the revision of its workload, and has not had it recently: a change was taken back.
func (l *laws) wasOld(on Workload, pod *corev1.Pod, now time.Time) bool {
	list, has := l.wished[on.Name], l.revision(pod)
	old := false
	for i := len(list) - 2; i >= 0 && now.Sub(list[i+1].at) <= recently; i-- {
		old = old || list[i].revision != has
	}
	return old && list[len(list)-1].revision == has
}

func (l *laws) revision(pod *corev1.Pod) revision {
	return revision{image(pod.Spec), l.facts(pod).templated}
}

// rollsOut reports whether a Deployment has pods of another revision than a pod, also terminating ones: its controller scales both
// ReplicaSets, and keeps maxUnavailable for them together.
func (l *laws) rollsOut(on Workload, pod *corev1.Pod) bool {
	if on.Kind != Deployment {
		return false
	}
	for _, object := range l.mirror["pods"] {
		other := object.(*corev1.Pod)
		if other.Labels[app] == on.Name && other.Namespace == pod.Namespace && l.revision(other) != l.revision(pod) {
			return true
		}
	}
	return false
}

// isCurrent reports whether a pod has the revision that its workload has had for a time.
func (l *laws) isCurrent(on Workload, pod *corev1.Pod) bool {
	list := l.wished[on.Name]
	return isSettled(list, time.Now()) && list[len(list)-1].revision == l.revision(pod)
}

// daemonSetWants returns why a DaemonSet wants a pod.
func (l *laws) daemonSetWants(on Workload, pod *corev1.Pod) string {
	if !l.isCurrent(on, pod) || !l.selectsNode(on, pod) {
		return ""
	}
	return "its node is selected, and its revision is the present one"
}

// unavailable returns how many pods of a Deployment or a DaemonSet a rollout may take away at once.
func (l *laws) unavailable(on Workload, replicas int) int {
	switch {
	case on.Kind == DaemonSet:
		return 1
	case on.Recreate:
		return replicas
	}
	bound := on.MaxUnavailable
	if bound == "" {
		bound = "25%"
	}
	value := intstr.Parse(bound)
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, replicas, false)
	if err != nil {
		return replicas
	}
	if surge := on.MaxSurge; n == 0 && (surge == "0" || surge == "0%") {
		return 1
	}
	return n
}

// selectsNode reports whether a DaemonSet selects the node of a pod, which did not change recently.
func (l *laws) selectsNode(on Workload, pod *corev1.Pod) bool {
	node, ok := l.mirror.get("nodes", "", pod.Spec.NodeName).(*corev1.Node)
	set, live := l.mirror.get("daemonsets", on.Namespace(), on.Name).(*appsv1.DaemonSet)
	return ok && live && set.DeletionTimestamp == nil && time.Since(l.nodes[node.Name]) > recently &&
		labels.SelectorFromSet(set.Spec.Template.Spec.NodeSelector).Matches(labels.Set(node.Labels))
}

// jobWants returns why a Job wants its pods.
func (l *laws) jobWants(on Workload) string {
	job, ok := l.mirror.get("jobs", on.Namespace(), on.Name).(*batchv1.Job)
	if !ok || job.DeletionTimestamp != nil || job.Spec.Suspend != nil && *job.Spec.Suspend || job.Status.CompletionTime != nil {
		return ""
	}
	if !isSettled(l.wished[on.Name], time.Now()) {
		return ""
	}
	active := l.mirror.active(func(other *corev1.Pod) bool { return other.Labels[app] == on.Name })
	if len(active) > int(*job.Spec.Parallelism) {
		return ""
	}
	return "the Job is not suspended"
}

// rememberWorkload records the number and the revision that a workload is to have, at the write: its author hears of it later.
func (l *laws) rememberWorkload(write apiserver.Write) {
	on, ok := l.world.schedule.workload(write.Name)
	if !ok || on.Namespace() != write.Namespace {
		return
	}
	list := l.wished[on.Name]
	now := list[len(list)-1]
	switch object := write.After.(type) {
	case *appsv1.Deployment:
		now.n, now.revision = int(*object.Spec.Replicas), revisionFrom(object.Spec.Template)
	case *appsv1.StatefulSet:
		now.n, now.revision = int(*object.Spec.Replicas), revisionFrom(object.Spec.Template)
	case *appsv1.ReplicaSet:
		now.n, now.revision = int(*object.Spec.Replicas), revisionFrom(object.Spec.Template)
	case *appsv1.DaemonSet:
		now.revision = revisionFrom(object.Spec.Template)
	case *unstructured.Unstructured:
		n, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		now.image, _, _ = unstructured.NestedString(object.Object, "spec", "image")
		now.n = int(n)
	default:
		return
	}
	if last := list[len(list)-1]; last.n != now.n || last.revision != now.revision {
		now.at = write.Time
		l.wished[on.Name] = append(list, now)
	}
}

func revisionFrom(template corev1.PodTemplateSpec) revision {
	return revision{image(template.Spec), template.Labels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue}
}

// rememberRule records the bound of a rule of availability.
func (l *laws) rememberRule(write apiserver.Write, rule *appsv1alpha1.PodTransitionRule) {
	key := rule.Namespace + "/" + rule.Name
	bound, ok := l.bound(rule)
	if !ok || write.After == nil {
		bound = math.MaxInt32
	}
	list := l.bounds[key]
	if len(list) == 0 {
		l.bounds[key] = []dated{{n: math.MaxInt32}, {at: write.Time, n: bound}}
	} else if list[len(list)-1].n != bound {
		l.bounds[key] = append(list, dated{at: write.Time, n: bound})
	}
}

// bound returns how many of the pods of a rule may be unavailable.
func (l *laws) bound(rule *appsv1alpha1.PodTransitionRule) (int, bool) {
	if len(rule.Spec.Rules) == 0 || rule.Spec.Rules[0].AvailablePolicy == nil || rule.Spec.Rules[0].AvailablePolicy.MaxUnavailableValue == nil {
		return 0, false
	}
	value := rule.Spec.Rules[0].AvailablePolicy.MaxUnavailableValue
	if value.Type == intstr.Int {
		return value.IntValue(), true
	}
	on, _ := l.world.schedule.workload(strings.TrimSuffix(rule.Name, "-available"))
	n, err := intstr.GetScaledValueFromIntOrPercent(value, l.desired(on, time.Now()), false)
	return max(1, n), err == nil
}

// desired returns the number of pods that a workload wants, the lowest of those it wanted recently.
func (l *laws) desired(on Workload, now time.Time) int {
	wish := l.world.wished(on.Name)
	switch {
	case wish.gone && !wish.orphaned: // its pods go at once
		return 0
	case on.Kind == DaemonSet:
		set, ok := l.mirror.get("daemonsets", on.Namespace(), on.Name).(*appsv1.DaemonSet)
		if !ok {
			return 0
		}
		return int(set.Status.DesiredNumberScheduled)
	case on.Kind == Group:
		return floor(l.wished[on.Name], now) * (1 + workersPerLeader)
	case on.Kind == Job:
		if !isSettled(l.wished[on.Name], now) {
			return 0 // it may have been suspended
		}
		return l.wants(on, 0)
	default:
		desired := floor(l.wished[on.Name], now)
		if wish.gone { // a pod without an owner counts while it is there
			selected, _ := l.serving(on)
			return min(desired, len(selected))
		}
		return desired
	}
}

// highest returns the most lenient bound of a rule in the last seconds.
func highest(list []dated, now time.Time) int {
	if len(list) == 0 {
		return math.MaxInt32
	}
	bound := list[len(list)-1].n
	for i := len(list) - 2; i >= 0 && now.Sub(list[i+1].at) <= recently; i-- {
		bound = max(bound, list[i].n)
	}
	return bound
}

// isAvailable reports whether a pod serves.
func isAvailable(pod *corev1.Pod) bool { return isActive(pod) && isTrue(pod, corev1.PodReady) }

// available checks the laws of a pod that an act of PodOps, or one that it let pass, takes out of service,
// after the write.
func (l *laws) available(write apiserver.Write, before *corev1.Pod) {
	after, _ := write.After.(*corev1.Pod)
	closes := isManager(write.User) && after != nil && isTrue(before, appsv1alpha1.ServiceReadyGate) && !isTrue(after, appsv1alpha1.ServiceReadyGate)
	if closes {
		l.closes(write, before, after)
	}
	leaves := closes || isRemoval(write) && l.isGuarded(write.User, before)
	if !isAvailable(before) || !leaves {
		return
	}
	on, ok := l.world.schedule.workload(before.Labels[app])
	if !ok {
		return
	}
	if on.Kind == Deployment && !on.Recreate || on.Kind == DaemonSet && l.selectsNode(on, before) {
		l.ownBound(write, before, on)
	}
	l.ruleBound(write, before, on)
}

// ruleBound checks that a pod that leaves leaves as many available pods as the rule of availability of its workload
// demands.
func (l *laws) ruleBound(write apiserver.Write, before *corev1.Pod, on Workload) {
	now := write.Time
	bound := highest(l.bounds[before.Namespace+"/"+ruleName(on.Name, "max")], now) - l.world.schedule.Strict
	if bound >= math.MaxInt32-1 || on.Kind == Group && !l.world.wished(on.Name).labelled {
		return // no rule knows the pods that such a group is to have
	}
	selected, serving := l.serving(on)
	if least := l.desired(on, now) - bound; serving+l.freedLately(on, now) < least && !l.failedRecently(selected, now) {
		l.violate(now, lawAvailable, fmt.Sprintf("%s took %s away: %d pods of %s are available, at least %d must be",
			shortUser(write.User), before.Name, serving, on.Name, least))
	}
}

// serving returns the active pods of a workload, and how many of them serve. A pod that PodOps took off traffic does not
// serve although its kubelet has not reported it.
func (l *laws) serving(on Workload) (selected []*corev1.Pod, serving int) {
	selected = l.mirror.active(func(pod *corev1.Pod) bool { return pod.Labels[app] == on.Name && pod.Namespace == on.Namespace() })
	return selected, countFunc(selected, func(pod *corev1.Pod) bool {
		isOff := hasGate(pod) && isControlled(pod) && !isTrue(pod, appsv1alpha1.ServiceReadyGate)
		return isAvailable(pod) && !isOff
	})
}

// ownBound checks that a pod that leaves for its Deployment or DaemonSet leaves as many available pods as the maxUnavailable of its
// owner demands.
func (l *laws) ownBound(write apiserver.Write, before *corev1.Pod, on Workload) {
	now := write.Time
	if l.isRequested(before) || isRequestedByLabel(before) || l.world.wished(on.Name).gone || l.wasOld(on, before, now) ||
		l.isSurplus(before) {
		return
	}
	selected, serving := l.serving(on)
	desired := l.desired(on, now)
	least := desired - l.unavailable(on, desired) + l.world.schedule.Strict - l.twice()
	if serving+l.freedLately(on, now) >= least || l.failedRecently(selected, now) {
		return
	}
	why := fmt.Sprintf("%s took %s away: %d pods of %s are available, and its maxUnavailable demands %d",
		shortUser(write.User), before.Name, serving, on.Name, least)
	if isRemoval(write) {
		l.violate(now, lawAvailable, why)
		return
	}
	// The request of a client may still wait for its answer.
	l.owe(before, now, lawAvailable, why)
}

// isSurplus reports whether the old ReplicaSet of a pod has more pods than replicas: the Deployment was scaled in, and its controller
// takes no step before the surplus is gone.
func (l *laws) isSurplus(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return false
	}
	set, ok := l.mirror.get("replicasets", pod.Namespace, controller.Name).(*appsv1.ReplicaSet)
	if !ok || metav1.GetControllerOf(set) == nil {
		return false
	}
	const revision = "deployment.kubernetes.io/revision"
	deployment, ok := l.mirror.get("deployments", pod.Namespace, metav1.GetControllerOf(set).Name).(*appsv1.Deployment)
	return ok && deployment.Annotations[revision] != set.Annotations[revision] &&
		len(l.mirror.active(func(other *corev1.Pod) bool { return other.UID != pod.UID && metav1.IsControlledBy(other, set) })) >= int(*set.Spec.Replicas)
}

// owe records a violation of a law unless a client requests the removal of a pod in time.
func (l *laws) owe(pod *corev1.Pod, now time.Time, law, why string) {
	if facts := l.facts(pod); facts.debt.IsZero() {
		facts.debt, facts.law, facts.why = now, law, why
	}
}

// failedRecently reports whether a pod became unready by itself recently, or is new.
func (l *laws) failedRecently(pods []*corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return now.Sub(l.facts(pod).failed) < recently })
}

// freedLately returns how many pods of a workload without the control label were removed so lately that PodOps may not have seen it: nothing
// delays their removal, also while another pod of the workload gets its permit.
func (l *laws) freedLately(on Workload, now time.Time) int {
	return countFunc(l.freed[on.Name], func(at time.Time) bool { return now.Sub(at) < late })
}

// closes checks that the owner or a client wants a pod removed that goes off traffic to be deleted. The request of the
// client may still wait for its answer. While no manager answers reviews, the owner removes a pod that it chooses, beside the pod
// that PodOps chose for the same surplus, and so does a user whose removal PodOps may not have seen.
func (l *laws) closes(write apiserver.Write, before, after *corev1.Pod) {
	deletes := false
	for key := range after.Labels {
		deletes = deletes || key == appsv1alpha1.OperatingLabelPrefix+"/pod-delete"
	}
	on, _ := l.world.schedule.workload(before.Labels[app])
	if !deletes || isRequestedByLabel(after) || !l.world.managers.guards() || l.isRequested(before) {
		return
	}
	if why := l.isWanted(on, before); why != "" && write.Time.Sub(l.taken[on.Name]) >= late {
		l.owe(before, write.Time, lawWanted, before.Name+" went off traffic to be deleted: "+why)
	}
}
