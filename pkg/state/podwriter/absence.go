package podwriter

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// absence describes a pod that is not available, for the event that ends it. After a restart it
// is derived from the pod, with less detail.
type absence struct {
	since time.Time

	// isNew is true if the pod was never available.
	isNew bool

	// operations on the pod since, and whether they passed their PostCheck rules, with the names of
	// the rules.
	operations []string
	checked    bool
	rules      []string
}

// absenceBytes bounds the memory of absences, some thousands. Beyond it the namespace with the most
// of them loses its oldest: the events of these pods have less detail then.
const absenceBytes = 6 << 20

// Bytes of an absence besides its texts, and of a text besides its content.
const absenceSize, textSize = 96, 16

// absences by UID. It is safe for concurrent use.
type absences struct {
	mu sync.Mutex
	of *fairshare.Cache[types.UID, absence]
}

func newAbsences() *absences {
	return &absences{of: fairshare.NewCache[types.UID, absence](absenceBytes)}
}

// begin returns the absence of a pod, which begins now unless it has. The caller holds the
// lock.
func (a *absences) begin(pod *corev1.Pod, facts lifecycle.PodFacts, now time.Time) absence {
	if known, ok := a.of.Get(pod.UID); ok {
		return known
	}
	begun := absence{since: absentSince(pod, facts, now), isNew: facts.Gate == lifecycle.GateUnset}
	a.keep(pod, begun)
	return begun
}

// keep replaces the absence of a pod.
func (a *absences) keep(pod *corev1.Pod, known absence) {
	bytes := int64(absenceSize)
	for _, text := range slices.Concat(known.operations, known.rules) {
		bytes += textSize + int64(len(text))
	}
	a.of.Add(pod.Namespace, pod.UID, known, bytes)
}

// absentSince returns when an unavailable pod became so, as far as the pod shows it.
func absentSince(pod *corev1.Pod, facts lifecycle.PodFacts, now time.Time) time.Time {
	switch {
	case facts.Gate == lifecycle.GateUnset && !pod.CreationTimestamp.IsZero():
		return pod.CreationTimestamp.Time
	case facts.Gate == lifecycle.GateFalse && !facts.GateSince.IsZero():
		return facts.GateSince
	case !facts.Ready && !facts.ReadySince.IsZero():
		return facts.ReadySince
	default:
		return now
	}
}

// see records a version of a pod, and returns its absence when that has ended.
func (a *absences) see(pod *corev1.Pod, now time.Time) (ended absence, ok bool) {
	facts := lifecycle.NewPodFacts(pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	if facts.Terminating || !facts.Controlled() {
		a.of.Remove(pod.UID)
		return absence{}, false
	}
	if _, available := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]; available {
		ended, ok = a.of.Get(pod.UID)
		a.of.Remove(pod.UID)
		return ended, ok
	}
	known := a.begin(pod, facts, now)
	if operations := lifecycle.Operations(facts); len(operations) > 0 && !slices.Equal(operations, known.operations) {
		known.operations = operations
		a.keep(pod, known)
	}
	return absence{}, false
}

// checked records that a write gives ids of a pod their PostCheck permits.
func (a *absences) checked(pod *corev1.Pod, transitions []lifecycle.Transition, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, transition := range transitions {
		if transition.Step != lifecycle.StepPostPermit {
			continue
		}
		known := a.begin(pod, lifecycle.NewPodFacts(pod), now)
		known.checked = true
		for _, name := range transition.Rules {
			if !slices.Contains(known.rules, name) {
				known.rules = append(known.rules, name)
			}
		}
		a.keep(pod, known)
	}
}

// text describes the end of an absence.
func (a absence) text(now time.Time) string {
	took := duration.HumanDuration(now.Sub(a.since))
	switch {
	case len(a.operations) > 0 && a.checked:
		return "the pod may serve again after " + strings.Join(a.operations, ", ") + ": PostCheck rules passed" + inBrackets(a.rules) +
			", readiness gate True, off traffic for " + took
	case len(a.operations) > 0:
		return "the pod may serve again after " + strings.Join(a.operations, ", ") + ": off traffic for " + took
	case a.isNew:
		return "the pod may serve for the first time, " + took + " after its creation"
	default:
		return "the pod may serve again after " + took
	}
}

// Observe records that a pod has become available, after any request: admission handles the
// request of the last service controller, and records no event. The caller passes each
// version of a pod that it sees.
func (w *Writer) Observe(pod *corev1.Pod) {
	now := w.clock.Now()
	if ended, ok := w.absences.see(pod, now); ok {
		w.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventServiceAvailable, "Available", "%s", ended.text(now))
	}
}
