package replicasetscale_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// model is a Deployment with its ReplicaSets and pods, the two controllers of Kubernetes, and PodOps
// at admission and behind it.
type model struct {
	deployment            *appsv1.Deployment
	surge, maxUnavailable int
	sets                  []*modelSet
	newest                *modelSet
	now                   time.Time
	serial                int
	writes                int // to ReplicaSets
}

type modelSet struct {
	object *appsv1.ReplicaSet
	pods   []*corev1.Pod
	waits  replicasetscale.Waits

	attempts map[types.UID]replicasetscale.Attempt

	// scaled is true once a lowering has passed, until the ReplicaSet has no surplus: deletes of its pods are held.
	scaled bool
}

func newModel(replicas, surge, maxUnavailable int) *model {
	m := &model{surge: surge, maxUnavailable: maxUnavailable, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m.deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	m.deployment.Spec.Replicas = new(int32(replicas))
	m.deployment.Spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(int32(surge))), MaxUnavailable: new(intstr.FromInt32(int32(maxUnavailable))),
		},
	}
	m.rollOut(nil)
	m.settle()
	return m
}

func (m *model) replicas() int { return int(*m.deployment.Spec.Replicas) }

// rollOut makes a ReplicaSet the newest; nil stands for a new template.
func (m *model) rollOut(set *modelSet) {
	if set == nil {
		set = &modelSet{object: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}, attempts: map[types.UID]replicasetscale.Attempt{}}
		set.object.UID, set.object.Name = types.UID(fmt.Sprint("set-", len(m.sets))), fmt.Sprint("set-", len(m.sets))
		set.object.Spec.Replicas = new(int32(0))
		m.sets = append(m.sets, set)
	}
	m.serial++
	m.newest = set
	set.object.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = strconv.Itoa(m.serial)
	m.deployment.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey] = strconv.Itoa(m.serial)
}

func (s *modelSet) replicas() int { return int(*s.object.Spec.Replicas) }

func (s *modelSet) available() int {
	count := 0
	for _, pod := range s.pods {
		if pod.Status.Conditions[0].Status == corev1.ConditionTrue {
			count++
		}
	}
	return count
}

func (m *model) total() (replicas, available int) {
	for _, set := range m.sets {
		replicas, available = replicas+set.replicas(), available+set.available()
	}
	return replicas, available
}

// request is a write of the controller of Deployments, through admission.
func (m *model) request(set *modelSet, replicas int) {
	before := set.replicas()
	switch {
	case replicas >= before:
	case set == m.newest:
		set.scaled = true
	default:
		replicas = replicasetscale.Kept(before, replicas, replicasetscale.Ungranted(set.pods))
	}
	if replicas != before {
		m.writes++
		set.object.Spec.Replicas = new(int32(replicas))
		delete(set.object.Annotations, appsv1alpha1.WokenAnnotationKey)
	}
}

// syncDeployment is a step of the controller of Deployments, strategy RollingUpdate.
func (m *model) syncDeployment() {
	replicas, _ := m.total()
	switch own := m.newest.replicas(); {
	case own > m.replicas():
		m.request(m.newest, m.replicas())
		return
	case own < m.replicas() && replicas < m.replicas()+m.surge:
		m.request(m.newest, min(m.replicas(), own+m.replicas()+m.surge-replicas))
		return
	}
	minAvailable := m.replicas() - m.maxUnavailable
	room := replicas - minAvailable - (m.newest.replicas() - m.newest.available())
	if room <= 0 {
		return
	}
	for _, set := range m.sets {
		if unhealthy := min(room, set.replicas()-set.available()); set != m.newest && unhealthy > 0 {
			room -= unhealthy
			m.request(set, set.replicas()-unhealthy)
		}
	}
	_, available := m.total()
	for _, set := range m.sets {
		if count := min(available-minAvailable, set.replicas()); set != m.newest && count > 0 {
			available -= count
			m.request(set, set.replicas()-count)
		}
	}
}

// syncSet is a step of the ReplicaSet controller. It returns the pods whose delete would be held.
func (m *model) syncSet(set *modelSet) (held []*corev1.Pod) {
	for len(set.pods) < set.replicas() {
		m.serial++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(m.serial)), CreationTimestamp: metav1.NewTime(m.now)}}
		pod.Spec.NodeName = "node"
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(m.now)}}
		set.pods = append(set.pods, pod)
	}
	excess := len(set.pods) - set.replicas()
	set.scaled = set.scaled && excess > 0
	for _, pod := range replicasetscale.Victims(set.pods, set.pods, m.now)[:max(0, excess)] {
		if !replicasetscale.IsGranted(pod) {
			held = append(held, pod)
			continue
		}
		set.pods = slices.DeleteFunc(set.pods, func(other *corev1.Pod) bool { return other == pod })
	}
	return held
}

// control is a step of PodOps for one ReplicaSet.
func (m *model) control(set *modelSet) {
	for _, other := range m.sets {
		other.object.Status.Replicas, other.object.Status.AvailableReplicas = int32(len(other.pods)), int32(other.available())
	}
	workload := replicasetscale.Workload{Deployment: m.deployment}
	for _, other := range m.sets {
		workload.Sets = append(workload.Sets, other.object)
	}
	var decision replicasetscale.Decision
	snapshot := replicasetscale.Snapshot{Set: set.object, Workload: workload, Pods: set.pods, Attempts: set.attempts}
	for _, other := range m.sets {
		snapshot.Workload.Pods = append(snapshot.Workload.Pods, other.pods...)
	}
	decision, set.waits = replicasetscale.Decide(snapshot, set.waits, m.now)
	for _, pod := range decision.Exchange {
		set.attempts[pod.UID] = replicasetscale.AttemptOn(pod, m.now)
		pod.Labels, pod.Annotations = nil, merged(pod.Annotations, replicasetscale.Unpin(pod))
	}
	for _, pod := range snapshot.Candidates(m.now) {
		if decision.Begin > 0 {
			decision.Begin--
			labels, annotations := replicasetscale.Begin(pod, m.now)
			pod.Labels, pod.Annotations = merged(pod.Labels, labels), merged(pod.Annotations, annotations)
		}
	}
	for _, pod := range decision.Unpin {
		if !replicasetscale.IsDeleting(pod) { // it may have begun again
			pod.Annotations = merged(pod.Annotations, replicasetscale.Unpin(pod))
		}
	}
	set.object.Annotations = merged(set.object.Annotations, decision.Annotations)
	for _, pod := range deferreddelete.PlanFor(workload.Target(set.object), 0, set.pods).Cancel {
		pod.Labels, pod.Annotations = nil, merged(pod.Annotations, replicasetscale.Unpin(pod))
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

func merged(into map[string]string, changes map[string]any) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	for key, value := range changes {
		if text, ok := value.(string); ok {
			into[key] = text
		} else {
			delete(into, key)
		}
	}
	return into
}

// grant lets a pod that has begun be deleted.
func grant(pod *corev1.Pod) {
	if replicasetscale.IsDeleting(pod) {
		pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+appsv1alpha1.PodDeleteID] = "1"
		if cost := replicasetscale.CostOnGrant(pod, pod.Labels); cost != "" {
			pod.Annotations[corev1.PodDeletionCost] = cost
		}
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}
}

// prepare makes a pod that has begun unready, as the readiness gate does before operate is granted.
func prepare(pod *corev1.Pod) {
	if replicasetscale.IsDeleting(pod) {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}
}

// cancel ends the deletion of a pod that waits, as the end of maxHold does.
func cancel(pod *corev1.Pod) {
	if replicasetscale.IsDeleting(pod) && !replicasetscale.IsGranted(pod) {
		pod.Labels = nil
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

// start makes a new pod Ready.
func start(pod *corev1.Pod) {
	if !replicasetscale.IsDeleting(pod) {
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

func (m *model) eachPod(visit func(*corev1.Pod)) {
	for _, set := range m.sets {
		for _, pod := range set.pods {
			visit(pod)
		}
	}
}

// settle lets every actor take its steps until nothing is left to do.
func (m *model) settle() (settled bool) {
	for range 2 * int(replicasetscale.LongestPause/time.Second) {
		m.now = m.now.Add(time.Second)
		m.syncDeployment()
		for _, set := range m.sets {
			m.syncSet(set)
			m.control(set)
		}
		m.eachPod(start)
		m.eachPod(grant)
		if m.settled() {
			return true
		}
	}
	return false
}

func (m *model) settled() bool {
	for _, set := range m.sets {
		want := 0
		if set == m.newest {
			want = m.replicas()
		}
		if set.replicas() != want || len(set.pods) != want || set.available() != want || replicasetscale.HasAnnotations(set.object) {
			return false
		}
		if slices.ContainsFunc(set.pods, func(pod *corev1.Pod) bool { return replicasetscale.IsBegun(pod) }) {
			return false
		}
	}
	return true
}

// TestModel shows, for any order of steps and requests, that admission never adds to the pods beyond
// replicas + maxSurge, that the ReplicaSet controller deletes granted pods only in a rollout, that the controller
// of Deployments comes to rest while pods wait, and that everything finishes once pods are granted.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		surge := rapid.IntRange(0, 4).Draw(t, "maxSurge")
		m := newModel(rapid.IntRange(1, 12).Draw(t, "replicas"), surge, rapid.IntRange(min(1, 1-min(1, surge)), 4).Draw(t, "maxUnavailable"))
		oneSet := func(t *rapid.T) *modelSet { return rapid.SampledFrom(m.sets).Draw(t, "set") }
		pod := func(t *rapid.T) *corev1.Pod {
			if set := oneSet(t); len(set.pods) > 0 {
				return rapid.SampledFrom(set.pods).Draw(t, "pod")
			}
			return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{}}}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"roll out": func(t *rapid.T) {
				if len(m.sets) < 4 {
					m.rollOut(nil)
				}
			},
			"roll back": func(t *rapid.T) { m.rollOut(oneSet(t)) },
			"scale":     func(t *rapid.T) { *m.deployment.Spec.Replicas = int32(rapid.IntRange(1, 12).Draw(t, "replicas")) },
			"pause":     func(*rapid.T) { m.deployment.Spec.Paused = !m.deployment.Spec.Paused },
			"grant":     func(t *rapid.T) { grant(pod(t)) },
			"prepare":   func(t *rapid.T) { prepare(pod(t)) },
			"start":     func(t *rapid.T) { start(pod(t)) },
			"cancel":    func(t *rapid.T) { cancel(pod(t)) },
			"wait":      func(*rapid.T) { m.now = m.now.Add(5 * time.Second) },
			"control":   func(t *rapid.T) { m.control(oneSet(t)) },
			"sync set": func(t *rapid.T) {
				set := oneSet(t)
				if held := m.syncSet(set); len(held) > 0 && !set.scaled {
					t.Fatalf("the ReplicaSet controller deletes pod %s, which was not granted, in a rollout", held[0].UID)
				}
			},
			"sync Deployment": func(t *rapid.T) {
				if m.deployment.Spec.Paused {
					return
				}
				before, _ := m.total()
				for range 20 {
					written := m.writes
					m.syncDeployment()
					if m.writes == written {
						after, _ := m.total()
						if limit := max(before, m.replicas()+m.surge); after > limit {
							t.Fatalf("%d pods, want at most %d", after, limit)
						}
						return
					}
				}
				t.Fatal("the controller of Deployments writes without end")
			},
		})
		m.deployment.Spec.Paused = false
		if !m.settle() {
			t.Fatalf("not settled: %+v", m.summary())
		}
	})
}

func (m *model) summary() []string {
	lines := []string{fmt.Sprintf("replicas %d", m.replicas())}
	for _, set := range m.sets {
		lines = append(lines, fmt.Sprintf("%d replicas, %d pods, %d available, %v", set.replicas(), len(set.pods), set.available(), set.object.Annotations))
	}
	return lines
}
