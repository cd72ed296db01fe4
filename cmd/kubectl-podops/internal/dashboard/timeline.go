package dashboard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/pkg/view/timeline"
)

const (
	// maxSpans bounds the phases of one pod that are shown; the oldest phases are left out.
	maxSpans = 64

	// keptFor is the time for which the phases of a pod are shown.
	keptFor = 30 * time.Minute
)

// Track has the phases of one pod, oldest first.
type Track struct {
	UID   string `json:"uid"`
	Name  string `json:"name"`
	Spans []Span `json:"spans"`
}

// Span is one phase of a pod. To is nil while the phase lasts.
type Span struct {
	Phase rolloutview.Phase `json:"phase"`
	From  metav1.MicroTime  `json:"from"`
	To    *metav1.MicroTime `json:"to,omitempty"`
}

// history has the phases of all pods since the dashboard began to watch. Its size is bounded by the workloads of
// a state and by the bounds of a Recorder.
type history struct {
	began     time.Time
	recorders map[string]*timeline.Recorder // by workload
}

func newHistory(began time.Time) *history {
	return &history{began: began, recorders: map[string]*timeline.Recorder{}}
}

// record adds the pods of workloads and the changes of pods, and returns the tracks of all workloads by their keys.
// Workloads that are missing are forgotten.
func (h *history) record(workloads map[string][]*corev1.Pod, changes []timeline.Change, now time.Time) map[string][]Track {
	shown := make(map[string]*timeline.Recorder, len(workloads))
	result := make(map[string][]Track, len(workloads))
	from := now.Add(-keptFor)
	if from.Before(h.began) {
		from = h.began
	}
	for key, pods := range workloads {
		recorder := h.recorders[key]
		if recorder == nil {
			recorder = &timeline.Recorder{}
		}
		shown[key] = recorder
		recorder.Follow(pods, changes, func(*corev1.Pod) string { return "" }, now)
		recorder.Forget(from)
		result[key] = []Track{}
		for _, pod := range recorder.Pods() {
			if track := newTrack(pod.Between(from, now)); len(track.Spans) > 0 {
				result[key] = append(result[key], track)
			}
		}
	}
	h.recorders = shown
	return result
}

// newTrack returns the track of a pod.
func newTrack(pod timeline.Pod) Track {
	track := Track{UID: pod.UID, Name: pod.Name}
	spans := pod.Spans[max(0, len(pod.Spans)-maxSpans):]
	for i, span := range spans {
		shown := Span{Phase: span.Phase, From: metav1.NewMicroTime(span.From)}
		if i < len(spans)-1 || pod.Gone {
			to := metav1.NewMicroTime(span.To)
			shown.To = &to
		}
		track.Spans = append(track.Spans, shown)
	}
	return track
}
