package surge_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/surge"
)

const operation = appsv1alpha1.PodDeleteID

// model is a Deployment under a rule with minAvailable 100 % and surge, its ReplicaSet controller, and the evaluation of the rule.
type model struct {
	workload replicasetscale.Workload
	replicas int
	maxSurge int
	surges   int // of the rule
	pods     []*corev1.Pod
	created  int
	now      time.Time
}

func (m *model) available(pod *corev1.Pod) bool {
	_, is := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	return is
}

// controllers runs every controller until none changes anything.
func (m *model) controllers(t *rapid.T) {
	for range 50 {
		changed := m.replicaSet()
		changed = m.rule() || changed
		changed = m.surge() || changed
		if !changed {
			return
		}
	}
	t.Fatal("the controllers do not come to rest")
}

// replicaSet creates and deletes pods. It deletes unavailable pods, and those of a low deletion cost, first; an available one waits for the rule.
func (m *model) replicaSet() (changed bool) {
	var owned []*corev1.Pod
	for _, pod := range m.pods {
		if metav1.IsControlledBy(pod, m.workload.Sets[0]) {
			owned = append(owned, pod)
		}
	}
	for range m.replicas - len(owned) {
		m.created++
		pod := makePod(fmt.Sprintf("p%03d", m.created)).Obj()
		pod.UID = types.UID(pod.Name)
		delete(pod.Labels, appsv1alpha1.ServiceAvailableLabelKey)
		m.pods, owned, changed = append(m.pods, pod), append(owned, pod), true
	}
	slices.SortStableFunc(owned, func(a, b *corev1.Pod) int {
		available := func(pod *corev1.Pod) int { return map[bool]int{true: 1}[m.available(pod)] }
		cost := func(pod *corev1.Pod) int {
			number, _ := strconv.Atoi(pod.Annotations[corev1.PodDeletionCost])
			return number
		}
		return cmp.Or(available(a)-available(b), cost(a)-cost(b), strings.Compare(b.Name, a.Name))
	})
	for len(owned) > m.replicas && (!m.available(owned[0]) || m.room() > 0) {
		m.remove(owned[0])
		owned, changed = owned[1:], true
	}
	m.workload.Sets[0].Status.Replicas = int32(len(owned))
	return changed
}

func (m *model) remove(gone *corev1.Pod) {
	m.pods = slices.DeleteFunc(m.pods, func(pod *corev1.Pod) bool { return pod == gone })
}

// room returns how many available pods may go.
func (m *model) room() int {
	count := -m.replicas
	for _, pod := range m.pods {
		if m.available(pod) {
			count++
		}
	}
	return count
}

// rule permits the pods that wait, or withholds them.
func (m *model) rule() (changed bool) {
	for _, pod := range m.pods {
		if _, waits := pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+operation]; !waits {
			continue
		}
		if m.available(pod) && m.room() <= 0 {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[appsv1alpha1.DetailAnnotationKey("web")] = detail("availability", "NoRoom")
			continue
		}
		delete(pod.Annotations, appsv1alpha1.DetailAnnotationKey("web"))
		delete(pod.Labels, appsv1alpha1.PreCheckLabelPrefix+"/"+operation)
		delete(pod.Labels, appsv1alpha1.ServiceAvailableLabelKey)
		pod.Labels[appsv1alpha1.OperateLabelPrefix+"/"+operation], changed = "1", true
	}
	return changed
}

// surge carries out the steps.
func (m *model) surge() bool {
	value := intstr.FromInt32(int32(m.surges))
	steps, _ := surge.Decide(surge.Snapshot{Workload: m.workload, Pods: m.pods, Rules: []appsv1alpha1.PodTransitionRule{newRule("web", &value)}}, m.now)
	for _, step := range steps {
		if step.Owners != nil {
			step.Pod.OwnerReferences = step.Owners
		}
		for key, value := range step.Annotations {
			if value == nil {
				delete(step.Pod.Annotations, key)
				continue
			}
			if step.Pod.Annotations == nil {
				step.Pod.Annotations = map[string]string{}
			}
			step.Pod.Annotations[key] = value.(string)
		}
	}
	return len(steps) > 0
}

// end removes the operation from a pod.
func (m *model) end(pod *corev1.Pod) {
	for key := range pod.Labels {
		if strings.HasSuffix(key, "/"+operation) {
			delete(pod.Labels, key)
		}
	}
	delete(pod.Annotations, appsv1alpha1.DetailAnnotationKey("web"))
}

// pick returns one of the pods with a property; nil without one.
func (m *model) pick(t *rapid.T, has func(*corev1.Pod) bool) *corev1.Pod {
	var some []*corev1.Pod
	for _, pod := range m.pods {
		if has(pod) {
			some = append(some, pod)
		}
	}
	if len(some) == 0 {
		t.Skip("no such pod")
	}
	return rapid.SampledFrom(some).Draw(t, "pod")
}

func hasLabel(prefix string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { _, has := pod.Labels[prefix+"/"+operation]; return has }
}

// With any order of requests, withdrawals and delays, there are never more pods than replicas and maxSurge, and in the end there are as many as
// replicas, each with its ReplicaSet and without a record.
func TestADeploymentReturnsToItsReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			replicas: rapid.IntRange(1, 4).Draw(t, "replicas"), maxSurge: rapid.IntRange(0, 3).Draw(t, "maxSurge"),
			surges: rapid.IntRange(0, 3).Draw(t, "surge"), now: now,
		}
		m.workload = newWorkload(m.replicas, intstr.FromInt32(int32(m.maxSurge)))
		m.workload.Sets[0].Status.Replicas = 0
		comes := func(pod *corev1.Pod) { pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] = "1" }
		idle := func(pod *corev1.Pod) bool { return !hasLabel(appsv1alpha1.OperatingLabelPrefix)(pod) }
		m.controllers(t)
		t.Repeat(map[string]func(*rapid.T){
			"a pod becomes available": func(t *rapid.T) {
				comes(m.pick(t, func(pod *corev1.Pod) bool { return idle(pod) && !m.available(pod) }))
			},
			"an operation is requested": func(t *rapid.T) {
				pod := m.pick(t, idle)
				pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+operation] = strconv.Itoa(int(m.now.UnixNano()))
				pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+operation] = "1"
			},
			"a request is withdrawn":          func(t *rapid.T) { m.end(m.pick(t, hasLabel(appsv1alpha1.PreCheckLabelPrefix))) },
			"an operation in place has ended": func(t *rapid.T) { pod := m.pick(t, hasLabel(appsv1alpha1.OperateLabelPrefix)); m.end(pod); comes(pod) },
			"a pod is evicted":                func(t *rapid.T) { m.remove(m.pick(t, hasLabel(appsv1alpha1.OperateLabelPrefix))) },
			"the rule is edited":              func(t *rapid.T) { m.surges = rapid.IntRange(0, 3).Draw(t, "surge") },
			"time passes": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				m.controllers(t)
				if most := m.replicas + m.maxSurge; len(m.pods) > most {
					t.Fatalf("%d pods, at most %d may be there", len(m.pods), most)
				}
			},
		})
		for range 5 {
			for _, pod := range m.pods {
				m.end(pod)
				comes(pod)
			}
			m.now = m.now.Add(time.Hour)
			m.controllers(t)
		}
		if len(m.pods) != m.replicas {
			t.Fatalf("%d pods in the end, want %d", len(m.pods), m.replicas)
		}
		for _, pod := range m.pods {
			if _, recorded := surge.Recorded(pod); recorded || !metav1.IsControlledBy(pod, m.workload.Sets[0]) || pod.Annotations[corev1.PodDeletionCost] != "" {
				t.Fatalf("pod %s has the owners %v and the annotations %v in the end", pod.Name, pod.OwnerReferences, pod.Annotations)
			}
		}
	})
}
