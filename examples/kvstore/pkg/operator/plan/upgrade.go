package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxMessage bounds the messages of the status, in bytes.
const maxMessage = 1024

// upgrading reports whether an upgrade or its rollback is in progress.
func (p *planner) upgrading() bool {
	return p.status.Upgrade != nil && p.status.Upgrade.Step != kvstorev1.StepRolledBack
}

// advance takes an upgrade one step further, or begins it.
func (p *planner) advance() {
	if !p.upgrading() && p.migrate() {
		p.begin()
	}
	if !p.upgrading() {
		return
	}
	u := p.status.Upgrade
	p.target, p.operation = u.Ordinal, Upgrade
	switch {
	case u.RollingBack:
		p.rollBack(u)
	case p.Cluster.Spec.Version != u.ToVersion:
		p.fail(u, kvstorev1.ReasonSuperseded, "spec.version was changed to "+p.Cluster.Spec.Version)
	default:
		p.rollForward(u)
	}
	if p.upgrading() {
		p.target = p.status.Upgrade.Ordinal
	} else {
		p.operation = ""
	}
}

// begin begins an upgrade if the spec requests another version and this version has not failed before.
// A change of the number of replicas comes first.
func (p *planner) begin() {
	want := p.Cluster.Spec
	if u := p.status.Upgrade; u != nil {
		if u.ToVersion == want.Version {
			return
		}
		p.status.Upgrade = nil
	}
	if p.status.CurrentVersion == "" || p.status.CurrentVersion == want.Version {
		return
	}
	if p.StatefulSet == nil || *p.StatefulSet.Spec.Replicas != want.Replicas || p.removing(want.Replicas-1) {
		return
	}
	p.status.Upgrade = &kvstorev1.UpgradeStatus{
		Generation: p.Cluster.Generation, FromVersion: p.status.CurrentVersion, ToVersion: want.Version, Replicas: want.Replicas,
	}
	p.step(p.status.Upgrade, want.Replicas-1, kvstorev1.StepWaiting)
}

// step records a step.
func (p *planner) step(u *kvstorev1.UpgradeStatus, ordinal int32, step kvstorev1.UpgradeStep) {
	u.Ordinal, u.Step, u.StepStartedAt = ordinal, step, metav1.NewTime(p.now).Rfc3339Copy()
}

// rollForward upgrades the pods from the highest ordinal.
func (p *planner) rollForward(u *kvstorev1.UpgradeStatus) {
	m, exists := p.Members[u.Ordinal]
	upgraded := exists && m.version() == u.ToVersion
	switch u.Step {
	case kvstorev1.StepWaiting:
		if broken, ok := p.brokenAbove(u); ok {
			p.awaitReady(u, broken, p.unreadySince(u, broken))
		} else if upgraded || p.mayOperate(u.Ordinal, Upgrade) {
			p.step(u, u.Ordinal, kvstorev1.StepReplacing)
		}
	case kvstorev1.StepReplacing:
		switch {
		case !upgraded || !m.inService():
			p.awaitReady(u, u.Ordinal, u.StepStartedAt.Time)
		case p.Cluster.Spec.UpgradeStrategy == kvstorev1.CanaryUpgradeStrategy:
			p.step(u, u.Ordinal, kvstorev1.StepChecking)
		default:
			p.next(u)
		}
	case kvstorev1.StepChecking:
		p.check(u, m, upgraded)
	default:
	}
}

// brokenAbove returns an upgraded pod that is not healthy.
func (p *planner) brokenAbove(u *kvstorev1.UpgradeStatus) (int32, bool) {
	for ordinal := u.Ordinal + 1; ordinal < u.Replicas; ordinal++ {
		if m, exists := p.Members[ordinal]; !exists || !m.healthy() {
			return ordinal, true
		}
	}
	return 0, false
}

// unreadySince returns when a pod that was ready with the new version ceased to be, at the earliest when the step began: a step may
// wait for long, with the pod in service. A pod that does not exist has just ceased to.
func (p *planner) unreadySince(u *kvstorev1.UpgradeStatus, ordinal int32) time.Time {
	m, exists := p.Members[ordinal]
	if !exists {
		return p.now
	}
	since := u.StepStartedAt.Time
	later := func(at time.Time) {
		if at.After(since) {
			since = at
		}
	}
	later(m.Pod.CreationTimestamp.Time)
	if m.terminating() {
		later(m.Pod.DeletionTimestamp.Time)
	}
	for _, c := range m.Pod.Status.Conditions {
		if (c.Type == corev1.ContainersReady || c.Type == corev1.PodReady) && c.Status != corev1.ConditionTrue {
			later(c.LastTransitionTime.Time)
		}
	}
	return since
}

// awaitReady waits until the pod is ready, and at most for the deadline.
func (p *planner) awaitReady(u *kvstorev1.UpgradeStatus, ordinal int32, since time.Time) {
	name := PodName(p.Cluster.Name, ordinal)
	left := p.settings.ProgressDeadline - p.now.Sub(since)
	if left <= 0 {
		p.fail(u, kvstorev1.ReasonPodNotReady,
			fmt.Sprintf("pod %s of version %s was not ready within %s", name, u.ToVersion, p.settings.ProgressDeadline))
		return
	}
	p.wake(left)
	p.progress = progress{kvstorev1.ReasonReplacingPod, fmt.Sprintf("pod %s is not yet in service with version %s", name, u.ToVersion)}
}

// check runs the Job of the health check, and follows its result.
func (p *planner) check(u *kvstorev1.UpgradeStatus, m Member, upgraded bool) {
	job, exists := p.Jobs[checkName(p.Cluster.Name, u)]
	result, message := readJobResult(job)
	switch {
	case exists && result == jobComplete:
		p.next(u)
	case exists && result == jobFailed:
		p.fail(u, kvstorev1.ReasonHealthCheckFailed, fmt.Sprintf("the health check of pod %s failed: Job %s: %s",
			PodName(p.Cluster.Name, u.Ordinal), job.Name, message))
	case exists:
		p.progress = progress{kvstorev1.ReasonCheckingHealth, fmt.Sprintf("Job %s checks pod %s", job.Name, PodName(p.Cluster.Name, u.Ordinal))}
	case !upgraded || !m.inService():
		p.awaitReady(u, u.Ordinal, p.unreadySince(u, u.Ordinal))
	case p.Failure != "" && p.now.Sub(u.StepStartedAt.Time) >= p.settings.ProgressDeadline:
		p.fail(u, kvstorev1.ReasonHealthCheckFailed, fmt.Sprintf("the health check of pod %s was not started within %s: %s",
			m.Pod.Name, p.settings.ProgressDeadline, p.Failure))
	default:
		p.decision.CreateJob = p.checkJob(u, m)
		p.progress = progress{kvstorev1.ReasonCheckingHealth, "pod " + m.Pod.Name + " is checked"}
	}
}

// next continues with the next pod, or ends the upgrade.
func (p *planner) next(u *kvstorev1.UpgradeStatus) {
	if u.Ordinal > 0 {
		p.step(u, u.Ordinal-1, kvstorev1.StepWaiting)
		return
	}
	p.status.CurrentVersion, p.status.Upgrade = u.ToVersion, nil
}

// fail begins the rollback.
func (p *planner) fail(u *kvstorev1.UpgradeStatus, reason, message string) {
	u.RollingBack, u.Reason, u.Message = true, reason, text.Cut(message, maxMessage)
	p.nextBack(u)
}

// rollBack replaces every pod that does not have the old version. Unlike an upgrade it cannot follow the
// partition: a StatefulSet replaces the highest ordinal first, although another pod may be the broken
// pod, and then two pods would be unavailable.
func (p *planner) rollBack(u *kvstorev1.UpgradeStatus) {
	m, exists := p.Members[u.Ordinal]
	switch {
	case u.Step == kvstorev1.StepWaiting:
		target, found := p.toRollBack(u)
		begun := exists && m.version() != u.FromVersion && m.Permissions[Upgrade].Allowed
		switch {
		case !found || target != u.Ordinal && !begun:
			p.nextBack(u)
		case p.mayOperate(u.Ordinal, Upgrade):
			p.step(u, u.Ordinal, kvstorev1.StepReplacing)
		}
	case exists && m.version() != u.FromVersion:
		if !m.terminating() {
			p.decision.DeletePod = m.Pod
		}
		p.progress = progress{kvstorev1.ReasonReplacingPod, fmt.Sprintf("pod %s goes back to version %s", m.Pod.Name, u.FromVersion)}
	case exists && m.inService():
		p.nextBack(u)
	default:
		p.progress = progress{kvstorev1.ReasonReplacingPod,
			fmt.Sprintf("pod %s is not yet in service with version %s", PodName(p.Cluster.Name, u.Ordinal), u.FromVersion)}
	}
}

// nextBack continues the rollback with the next pod, or ends it. A superseded upgrade leaves no
// record: the new version follows.
func (p *planner) nextBack(u *kvstorev1.UpgradeStatus) {
	target, found := p.toRollBack(u)
	switch {
	case found:
		p.step(u, target, kvstorev1.StepWaiting)
	case !p.rollbackObserved(u):
		if u.Step != kvstorev1.StepWaiting {
			p.step(u, u.Ordinal, kvstorev1.StepWaiting)
		}
		p.progress = progress{kvstorev1.ReasonReplacingPod, "the StatefulSet goes back to version " + u.FromVersion}
	case u.Reason == kvstorev1.ReasonSuperseded:
		p.status.Upgrade = nil
	default:
		p.step(u, u.Ordinal, kvstorev1.StepRolledBack)
	}
}

// rollbackObserved reports whether the StatefulSet controller has observed the rollback: until then it may
// still create a pod of the new version.
func (p *planner) rollbackObserved(u *kvstorev1.UpgradeStatus) bool {
	set := p.StatefulSet
	return set != nil && set.Status.ObservedGeneration >= set.Generation && set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType &&
		imageVersion(set.Spec.Template.Spec) == u.FromVersion
}

// toRollBack returns the next pod to roll back: first pods that are not healthy, so that a healthy pod
// is replaced only while all others are healthy; then the highest ordinal.
func (p *planner) toRollBack(u *kvstorev1.UpgradeStatus) (ordinal int32, found bool) {
	ordinals := slices.DeleteFunc(p.ordinals(), func(ordinal int32) bool { return p.Members[ordinal].version() == u.FromVersion })
	if len(ordinals) == 0 {
		return 0, false
	}
	return slices.MaxFunc(ordinals, func(a, b int32) int {
		if healthy := p.Members[a].healthy(); healthy != p.Members[b].healthy() {
			if healthy {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	}), true
}

// mayOperate reports whether the pod may be removed now: every other pod is healthy, it does not
// lead, and PodOps allows it. Otherwise it takes the next step to that end. A pod that is not healthy
// does not wait for the others, nor for a leader: without it the store loses nothing.
//
// The last pod of its version may lead until it is permitted: a hook of PodOps moves leadership before the permit. Where
// none does, leadership moves after it.
func (p *planner) mayOperate(ordinal int32, operation Operation) bool {
	p.target, p.operation = ordinal, operation
	m, exists := p.Members[ordinal]
	if p.StatefulSet == nil {
		p.progress = progress{kvstorev1.ReasonWaitingForReplicas, "StatefulSet " + p.Cluster.Name + " does not exist"}
		return false
	}
	if !exists || m.terminating() {
		p.progress = progress{kvstorev1.ReasonWaitingForReplicas, "pod " + PodName(p.Cluster.Name, ordinal) + " does not exist"}
		return false
	}
	if !appsv1alpha1.IsControlled(m.Pod.Labels) {
		p.progress = progress{kvstorev1.ReasonWaitingForPermission,
			fmt.Sprintf("pod %s lacks the label %s=%s", m.Pod.Name, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)}
		return false
	}
	permission := m.Permissions[operation]
	if m.healthy() {
		if other, ok := p.unhealthyBeside(ordinal); ok {
			p.progress = progress{kvstorev1.ReasonWaitingForReplicas, fmt.Sprintf("pod %s waits until pod %s is healthy", m.Pod.Name, other)}
			return false
		}
		if (permission.Allowed || !p.lastOfVersion(ordinal)) && !p.leaderElsewhere(ordinal) {
			return false
		}
	}
	if !permission.Begun {
		p.decision.Begin = &PodOperation{m.Pod, operation}
	}
	if !permission.Allowed {
		p.progress = progress{kvstorev1.ReasonWaitingForPermission, fmt.Sprintf("pod %s waits for the permission of PodOps", m.Pod.Name)}
	}
	return permission.Begun && permission.Allowed
}

// unhealthyBeside returns a pod of another ordinal that is missing or not healthy.
func (p *planner) unhealthyBeside(ordinal int32) (string, bool) {
	for other := range *p.StatefulSet.Spec.Replicas {
		if m, exists := p.Members[other]; other != ordinal && (!exists || !m.healthy()) {
			return PodName(p.Cluster.Name, other), true
		}
	}
	return "", false
}

// leaderElsewhere reports whether a pod of another ordinal leads. Otherwise it requests an
// observation, or moves leadership: to the pod that is upgraded last, so that it moves twice in an
// upgrade and not with every pod, and from that pod to an upgraded pod.
func (p *planner) leaderElsewhere(ordinal int32) bool {
	name := PodName(p.Cluster.Name, ordinal)
	if len(p.Members) == 1 {
		return true
	}
	if !p.storeKnown() {
		p.decision.Observe = true
		p.progress = progress{kvstorev1.ReasonWaitingForLeader, "pod " + name + " waits until it is known which pod leads"}
		return false
	}
	if p.Store.Leader != name {
		return true
	}
	p.decision.MoveLeader = &Move{From: name, To: p.successors(ordinal)}
	p.progress = progress{kvstorev1.ReasonMovingLeader, "leadership moves away from pod " + name}
	return false
}

// lastOfVersion reports whether every other pod has another version, and is in service: a rule by which the leader
// goes last lets the pod go.
func (p *planner) lastOfVersion(ordinal int32) bool {
	for _, other := range p.ordinals() {
		if m := p.Members[other]; other != ordinal && (m.version() == p.Members[ordinal].version() || !m.inService()) {
			return false
		}
	}
	return true
}

// successors returns the pods to which leadership may move from a pod: from the lowest ordinal to the
// highest, and from any other in ascending order.
func (s Snapshot) successors(ordinal int32) []string {
	var pods []string
	for _, other := range s.ordinals() {
		if m := s.Members[other]; other != ordinal && m.ready() {
			pods = append(pods, m.Pod.Name)
		}
	}
	if ordinal == 0 {
		slices.Reverse(pods)
	}
	return pods
}
