package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// Reasons of events that mark the beginning of a phase.
const (
	reasonPermitted        = "Permitted"
	reasonServiceAvailable = "ServiceAvailable"
)

// mark is the beginning of a phase.
type mark struct {
	phase     rolloutview.Phase
	at        time.Time
	source    string
	precision Precision
}

// labelMark is the phase that begins with the time in the value of a label.
type labelMark struct {
	prefix string
	phase  rolloutview.Phase
}

func labelMarks() []labelMark {
	return []labelMark{
		{appsv1alpha1.OperatingLabelPrefix, rolloutview.PhasePreCheck},
		{appsv1alpha1.PreCheckLabelPrefix, rolloutview.PhasePreCheck},
		{appsv1alpha1.PreCheckedLabelPrefix, rolloutview.PhasePreparing},
		{appsv1alpha1.OperateLabelPrefix, rolloutview.PhaseOperating},
		{appsv1alpha1.OperatedLabelPrefix, rolloutview.PhasePostCheck},
		{appsv1alpha1.PostCheckedLabelPrefix, rolloutview.PhaseCompleting},
	}
}

// History returns the phases that pods still show: phases of the operation in progress from its labels,
// exactly; earlier phases from events, in seconds, for as long as the API server keeps events; the creation
// and the deletion in seconds. A phase that neither shows is part of the phase before it. Deleted pods are
// shown from their events alone, and the end of their last phase is not known.
func History(pods []*corev1.Pod, events []*corev1.Event, revision func(*corev1.Pod) string) []Pod {
	marks := map[string][]mark{} // by UID
	names := map[string]string{}
	for _, event := range events {
		phase, ok := phaseOfEvent(event)
		if !ok {
			continue
		}
		at := event.EventTime.Time
		if at.IsZero() {
			at = event.FirstTimestamp.Time
		}
		if at.IsZero() {
			continue
		}
		uid := string(event.InvolvedObject.UID)
		names[uid] = event.InvolvedObject.Name
		marks[uid] = append(marks[uid], mark{phase, at, "event " + event.Reason, Second})
	}
	var all []Pod
	for _, pod := range pods {
		uid := string(pod.UID)
		delete(names, uid)
		all = append(all, Pod{Name: pod.Name, UID: uid, Revision: revision(pod), Spans: newSpans(append(marks[uid], collectMarks(pod)...))})
	}
	for uid, name := range names {
		// Nothing shows when the last phase ended.
		spans := newSpans(marks[uid])
		last := &spans[len(spans)-1]
		last.To = last.From
		all = append(all, Pod{Name: name, UID: uid, Revision: OwnerName(name), Spans: spans, Gone: true})
	}
	return all
}

// OwnerName returns the ReplicaSet or StatefulSet name of a deleted pod: the pod's name without the last
// part.
func OwnerName(name string) string {
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		return name[:at]
	}
	return name
}

func phaseOfEvent(event *corev1.Event) (rolloutview.Phase, bool) {
	if event.InvolvedObject.Kind != "Pod" {
		return "", false
	}
	switch event.Reason {
	case reasonPermitted:
		return rolloutview.PhasePreparing, true
	case reasonServiceAvailable:
		return rolloutview.PhaseAvailable, true
	default:
		return "", false
	}
}

// maxSkew is how much earlier than the creation of a pod, by the clock of the API server, a manager may write a time.
const maxSkew = time.Minute

// collectMarks returns the beginnings of phases that a pod itself shows. A person may have written its labels: a time before its creation is none of
// its life.
func collectMarks(pod *corev1.Pod) []mark {
	marks := []mark{{rolloutview.PhaseStarting, pod.CreationTimestamp.Time, "metadata.creationTimestamp", Second}}
	for key, value := range pod.Labels {
		prefix, _, found := strings.Cut(key, "/")
		for _, label := range labelMarks() {
			if at, ok := lifecycle.ParseTime(value); found && ok && label.prefix == prefix {
				marks = append(marks, mark{label.phase, at, "label " + strings.TrimSuffix(prefix, "."+appsv1alpha1.LifecycleDomain), Exact})
			}
		}
	}
	marks = slices.DeleteFunc(marks, func(m mark) bool { return m.at.Before(pod.CreationTimestamp.Add(-maxSkew)) })
	phase, since := rolloutview.PodPhase(pod)
	// The manager writes the label when the pod may serve; its kubelet reports Ready after it.
	if at, ok := lifecycle.ParseTime(pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]); ok && phase != rolloutview.PhaseStarting {
		marks = append(marks, mark{rolloutview.PhaseAvailable, at, "label service-available", Exact})
	}
	// Phases without a time of their own, and phases that conditions show.
	switch phase {
	case rolloutview.PhaseTerminating:
		marks = append(marks, mark{phase, since, "metadata.deletionTimestamp", Second})
	case rolloutview.PhaseNotReady:
		marks = append(marks, mark{phase, since, "condition Ready", Second})
	case rolloutview.PhaseOffline:
		marks = append(marks, mark{phase, since, "condition " + appsv1alpha1.ServiceReadyGate, Second})
	default:
	}
	return marks
}

// newSpans returns the phases between marks. Of marks of the same phase that follow each other the first
// counts, or the exact one of the same second.
func newSpans(marks []mark) []Span {
	marks = slices.DeleteFunc(marks, func(m mark) bool { return m.at.IsZero() })
	slices.SortFunc(marks, func(a, b mark) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(phaseOrder(a.phase), phaseOrder(b.phase)), cmp.Compare(a.source, b.source))
	})
	var spans []Span
	for _, m := range marks {
		if last := len(spans) - 1; last >= 0 && spans[last].Phase == m.phase {
			if spans[last].Precision == Second && m.precision == Exact && m.at.Sub(spans[last].From) <= time.Second {
				spans[last].From, spans[last].Source, spans[last].Precision = m.at, m.source, m.precision
			}
			continue
		}
		spans = append(spans, Span{Phase: m.phase, From: m.at, Source: m.source, Precision: m.precision})
	}
	for i := range spans[:max(0, len(spans)-1)] {
		spans[i].To = spans[i+1].From
	}
	return spans
}

func phaseOrder(phase rolloutview.Phase) int { return slices.Index(rolloutview.Phases(), phase) }
