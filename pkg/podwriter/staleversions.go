package podwriter

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// StaleFor is how long a resourceVersion counts as stale after a conflict. A watch that is behind
// by more costs another conflict. It is shorter than all delays after a conflict, so that a pod
// without a watch event is retried.
const StaleFor = 500 * time.Millisecond

// StaleVersions remembers (pod, resourceVersion) pairs that returned a conflict. Until the watch
// delivers a newer version, another event would repeat the same decision and the same conflict.
// The zero value is empty. It is safe for concurrent use.
type StaleVersions struct{ versions versions }

// Note records a conflict with the pod at its resourceVersion.
func (m *StaleVersions) Note(pod *corev1.Pod, now time.Time) { m.versions.note(pod, now, StaleFor) }

// Has reports whether a write to the pod at its resourceVersion would fail with a conflict.
func (m *StaleVersions) Has(pod *corev1.Pod, now time.Time) bool {
	noted, ok := m.versions.last(pod.UID, now, StaleFor)
	return ok && noted == pod.ResourceVersion
}
