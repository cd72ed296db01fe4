package dashboard

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/rolloutview"
)

const (
	// maxSpans bounds the phases of one pod that are shown; the oldest ones go.
	maxSpans = 64

	// keptFor is how long the phases of a pod are shown.
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

// history has the phases of all pods since the dashboard began to watch. Its size is bounded by the pods of
// the views, those that are gone for keptFor, and maxSpans.
type history struct {
	began  time.Time
	tracks map[string][]*Track // by workload, in the order in which pods appeared
}

func newHistory(began time.Time) *history {
	return &history{began: began, tracks: map[string][]*Track{}}
}

// record adds the phases of the views, and returns the tracks of all workloads. Workloads without a view
// are forgotten.
func (h *history) record(views []rolloutview.View, now time.Time) map[string][]Track {
	shown := make(map[string][]*Track, len(views))
	result := make(map[string][]Track, len(views))
	for _, view := range views {
		key := view.Kind + "/" + view.Namespace + "/" + view.Name
		shown[key] = h.advance(h.tracks[key], view, now)
		for _, track := range shown[key] {
			result[key] = append(result[key], Track{UID: track.UID, Name: track.Name, Spans: append([]Span{}, track.Spans...)})
		}
	}
	h.tracks = shown
	return result
}

// advance returns the tracks of a workload with the phases of a view.
func (h *history) advance(tracks []*Track, view rolloutview.View, now time.Time) []*Track {
	known := map[string]*Track{}
	for _, track := range tracks {
		known[track.UID] = track
	}
	present := map[string]bool{}
	for _, pod := range view.AllPods() {
		present[pod.UID] = true
		track, ok := known[pod.UID]
		if !ok {
			track = &Track{UID: pod.UID, Name: pod.Name}
			tracks = append(tracks, track)
		}
		track.enter(pod.Phase, h.begin(pod, now))
	}
	kept := tracks[:0]
	for _, track := range tracks {
		if !present[track.UID] {
			track.enter(rolloutview.PhaseGone, now)
		}
		if track.trim(now.Add(-keptFor)) {
			kept = append(kept, track)
		}
	}
	clear(tracks[len(kept):])
	return kept
}

// begin returns when the phase of a pod began: not before the dashboard, and not in the future, since the clock of
// the cluster may differ.
func (h *history) begin(pod rolloutview.Pod, now time.Time) time.Time {
	if pod.Since == nil || pod.Since.After(now) {
		return now
	}
	if pod.Since.Time.Before(h.began) {
		return h.began
	}
	return pod.Since.Time
}

// enter ends the phase of a track and begins another one, if it differs.
func (t *Track) enter(phase rolloutview.Phase, at time.Time) {
	stamp := metav1.NewMicroTime(at)
	if n := len(t.Spans); n > 0 {
		last := &t.Spans[n-1]
		if last.Phase == phase {
			return
		}
		if at.Before(last.From.Time) {
			stamp = last.From
		}
		last.To = &stamp
	}
	t.Spans = append(t.Spans, Span{Phase: phase, From: stamp})
	t.Spans = t.Spans[max(0, len(t.Spans)-maxSpans):]
}

// trim removes phases that ended before a time, and reports whether phases of the pod are left.
func (t *Track) trim(before time.Time) bool {
	for len(t.Spans) > 1 && t.Spans[0].To.Time.Before(before) {
		t.Spans = t.Spans[1:]
	}
	last := t.Spans[len(t.Spans)-1]
	return last.Phase != rolloutview.PhaseGone || len(t.Spans) > 1
}
