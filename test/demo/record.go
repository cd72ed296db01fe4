package main

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"
)

// record holds the observations of a watch of the pods. It counts available pods itself and
// reads no count from a status.
type record struct {
	mu      sync.Mutex
	desired int
	pods    map[types.UID]*seen
	gone    []*seen
	reasons map[string]map[string]reason // PodTransitionRule -> pod name -> why it waits
	worst   int
	rolling bool
	changed chan struct{}
	phases  timeline.Recorder
}

// seen is one pod that the watch has shown.
type seen struct {
	name      string
	uid       types.UID
	old       bool // existed before the rollout
	phase     rolloutview.Phase
	available bool
	since     map[rolloutview.Phase]time.Time // first time in each phase
	ended     time.Time
}

// reason is a rule that withholds a pod, as "<PodTransitionRule>/<rule>", and its message.
type reason struct{ rule, message string }

func (r reason) String() string {
	if r.rule == "" {
		return ""
	}
	return r.rule + ": " + r.message
}

func newRecord(desired int) *record {
	return &record{
		desired: desired, pods: map[types.UID]*seen{}, reasons: map[string]map[string]reason{}, changed: make(chan struct{}, 1),
	}
}

// startRollout marks the pods that have to be replaced, and starts counting.
func (r *record) startRollout() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rolling = true
	for _, pod := range r.pods {
		pod.old = true
		clear(pod.since)
	}
}

func (r *record) set(pod *corev1.Pod, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry, ok := r.pods[pod.UID]
	if !ok {
		entry = &seen{name: pod.Name, uid: pod.UID, since: map[rolloutview.Phase]time.Time{}}
		r.pods[pod.UID] = entry
	}
	entry.phase, _ = rolloutview.PodPhase(pod)
	entry.available = podstate.Available(pod)
	r.phases.Observe(pod, controllerOf(pod), now)
	if _, ok := entry.since[entry.phase]; !ok {
		entry.since[entry.phase] = now
	}
	r.count()
}

func (r *record) remove(uid types.UID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry, ok := r.pods[uid]; ok {
		entry.ended = now
		r.gone = append(r.gone, entry)
		delete(r.pods, uid)
		r.phases.Remove(uid, now)
	}
	r.count()
}

// controllerOf returns the name of the ReplicaSet of a pod.
func controllerOf(pod *corev1.Pod) string {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.Name
	}
	return ""
}

// timeline returns the phases of the pods between two times.
func (r *record) timeline(from, to time.Time) timeline.Timeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	return timeline.New("the rollout of Deployment/web", r.phases.Pods(), from, to)
}

func (r *record) explain(rule *appsv1alpha1.PodTransitionRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := map[string]reason{}
	for _, blocked := range rule.Status.Blocked {
		reasons[blocked.Name] = reason{rule: blocked.Rule, message: blocked.Message}
	}
	r.reasons[rule.Name] = reasons
	r.notify()
}

// count keeps the highest number of desired pods that were unavailable at once. Old pods may
// leave as fast as new pods serve, since a Deployment surges while its deletes are held.
func (r *record) count() {
	if now := r.desired - r.availableNow(); r.rolling && now > r.worst {
		r.worst = now
	}
	r.notify()
}

func (r *record) availableNow() int {
	count := 0
	for _, pod := range r.pods {
		if pod.available {
			count++
		}
	}
	return count
}

func (r *record) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// why returns the reason for which a pod waits: the reason of the last PodTransitionRule by name.
func (r *record) why(pod string) reason {
	for _, rule := range slices.Backward(slices.Sorted(maps.Keys(r.reasons))) {
		if found, ok := r.reasons[rule][pod]; ok {
			return found
		}
	}
	return reason{}
}

// settled reports whether there are as many pods as desired, all available.
func (r *record) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods) == r.desired && r.availableNow() == r.desired
}

// rolled reports whether the pods are settled and no old pod is left.
func (r *record) rolled() bool {
	if !r.settled() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.pods {
		if pod.old {
			return false
		}
	}
	return true
}

// blockedBy reports whether a pod waits for a reason that contains the text.
func (r *record) blockedBy(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.pods {
		if pod.phase == rolloutview.PhasePreCheck && strings.Contains(r.why(pod.name).String(), text) {
			return true
		}
	}
	return false
}

// worstSoFar returns the highest number of unavailable pods at once.
func (r *record) worstSoFar() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worst
}
