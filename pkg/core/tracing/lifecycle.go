package tracing

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// Pod is the part of a pod version that its spans are derived from.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	Labels          map[string]string

	// Annotations are read for the rules that withhold the pod; nil while nothing waits on it.
	Annotations map[string]string

	// Workload is the workload at the top of the controller chain as "<Kind>/<name>"; empty without one.
	Workload string

	// Terminating is when the deletion of the pod was requested; zero if it was not.
	Terminating time.Time
}

// Outcomes of lifecycles: the values of the attribute podops.outcome.
const (
	// OutcomeCompleted means that the pod is available again.
	OutcomeCompleted = "Completed"

	// OutcomeRemoved means that the pod was removed, or released from PodOps.
	OutcomeRemoved = "Removed"

	// OutcomeUndone means that the operation was cancelled or undone.
	OutcomeUndone = "Undone"

	// OutcomeBegunAgain means that the id began again, or its type was changed, before its end.
	OutcomeBegunAgain = "BegunAgain"
)

// Lifecycles returns the spans that end with a change of a pod: phases, and root spans of lifecycles. A nil after is a
// pod that does not exist any more, or is not under PodOps any more. Without the version before, nothing has ended:
// a manager that starts does not know which spans were exported.
func Lifecycles(before, after *Pod, now time.Time) []Span {
	if before == nil {
		return nil
	}
	var spans []Span
	for _, id := range recorded(before.Labels) {
		spans = append(spans, changed(before, after, id, now)...)
	}
	if after == nil {
		return spans
	}
	for _, id := range recorded(after.Labels) {
		if before.began(id) == after.began(id) {
			continue
		}
		// Phases between two versions that the watch delivered.
		spans = append(spans, passed(after, id, collectMarks(after, id))...)
	}
	return spans
}

// changed returns the spans that an id had before and that end with a change.
func changed(before, after *Pod, id string, now time.Time) []Span {
	was := collectMarks(before, id)
	last := was[len(was)-1]
	if after != nil && after.began(id) == before.began(id) {
		marks := []mark{last}
		for _, m := range collectMarks(after, id) {
			if m.order > last.order {
				marks = append(marks, m)
			}
		}
		return passed(before, id, marks)
	}
	outcome, at := spanOutcome(after, id, last, now)
	root := before.root(id)
	root.Start, root.End = was[0].at, at
	root.Attributes = append(root.Attributes, keyOutcome.String(outcome))
	return []Span{before.phase(id, last, at), ended(root)}
}

// passed returns the spans of all phases but the last.
func passed(pod *Pod, id string, marks []mark) []Span {
	var spans []Span
	for i := range len(marks) - 1 {
		spans = append(spans, pod.phase(id, marks[i], marks[i+1].at))
	}
	return spans
}

// spanOutcome returns how a lifecycle ended, and when.
func spanOutcome(after *Pod, id string, last mark, now time.Time) (string, time.Time) {
	if after == nil {
		return OutcomeRemoved, now
	}
	if again, ok := lifecycle.ParseTime(after.began(id)); ok {
		return OutcomeBegunAgain, again
	}
	available, ok := lifecycle.ParseTime(after.Labels[appsv1alpha1.ServiceAvailableLabelKey])
	if ok && last.order >= orderPostCheck && !available.Before(last.at) {
		return OutcomeCompleted, available
	}
	return OutcomeUndone, now
}

// root returns the root span of a lifecycle, without times.
func (p *Pod) root(id string) Span {
	span := p.span(id)
	operationType := p.operationType(id)
	span.ID, span.Name = newSpanID(span.Trace, NameLifecycle), strings.TrimSpace(NameLifecycle+" "+operationType)
	span.Attributes = append(span.Attributes, keyOperationType.String(operationType))
	if p.Workload != "" {
		span.Attributes = append(span.Attributes, bounded(keyWorkload, p.Workload))
	}
	return span
}

// phase returns the span of a phase.
func (p *Pod) phase(id string, begun mark, end time.Time) Span {
	span := p.span(id)
	span.ID, span.Parent, span.Name = newSpanID(span.Trace, string(begun.phase)), newSpanID(span.Trace, NameLifecycle), string(begun.phase)
	span.Start, span.End = begun.at, end
	span.Attributes = append(span.Attributes, p.withheld(begun.phase)...)
	return ended(span)
}

// span returns a span with the attributes that every span of a lifecycle has.
func (p *Pod) span(id string) Span {
	of, _ := NewLifecycle(p.Namespace, p.Name, p.UID, p.Labels, id)
	return of.span()
}

func (l Lifecycle) span() Span {
	return Span{Trace: l.Trace, Namespace: l.Namespace, Attributes: []attribute.KeyValue{
		keyNamespace.String(l.Namespace), keyPod.String(l.Pod), keyUID.String(string(l.UID)), keyOperation.String(l.ID),
	}}
}

// withheld returns the attributes of a phase in which rules withheld the pod, according to its annotations: how many
// rules, and the reason of the first. A pod has them after 10 s.
func (p *Pod) withheld(phase podstate.Phase) []attribute.KeyValue {
	stage, waits := stages()[phase]
	if !waits {
		return nil
	}
	var found []podstate.Withheld
	for _, w := range podstate.WithheldBy(p.Annotations) {
		if w.Stage == stage {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []attribute.KeyValue{
		keyWithheldBy.Int(len(found)), bounded(keyReason, found[0].Code+": "+found[0].Message),
		bounded(keyReasonRule, found[0].Ruleset+"/"+found[0].Rule),
	}
}

// stages maps the phases in which a pod waits for rules to their stage.
func stages() map[podstate.Phase]appsv1alpha1.TransitionStage {
	return map[podstate.Phase]appsv1alpha1.TransitionStage{
		podstate.PhasePreCheck: appsv1alpha1.StagePreCheck, podstate.PhasePostCheck: appsv1alpha1.StagePostCheck,
	}
}

func (p *Pod) began(id string) string {
	value, _ := lifecycle.Value(p.Labels, appsv1alpha1.BeganLabelPrefix, id)
	return value
}

func (p *Pod) operationType(id string) string {
	if value, ok := lifecycle.Value(p.Labels, appsv1alpha1.OperationTypeLabelPrefix, id); ok {
		return value
	}
	value, _ := lifecycle.Value(p.Labels, appsv1alpha1.DoneOperationTypeLabelPrefix, id)
	return value
}

// recorded returns the ids of which labels record when they began, sorted: at most lifecycle.MaxIDs.
func recorded(labels map[string]string) []string {
	if !IsRecorded(labels) {
		return nil
	}
	var ids []string
	for _, id := range lifecycle.IDs(labels) {
		if len(ids) == lifecycle.MaxIDs {
			break // admission does not review changes of a terminating pod
		}
		if value, ok := lifecycle.Value(labels, appsv1alpha1.BeganLabelPrefix, id); ok {
			if _, isTime := lifecycle.ParseTime(value); isTime {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// mark is the beginning of a phase for an id.
type mark struct {
	phase podstate.Phase
	order int
	at    time.Time
}

// The order of an id's phases.
const (
	orderPreCheck = iota
	orderPreparing
	orderOperating
	orderPostCheck
	orderCompleting
	orderTerminating
)

// collectMarks returns the beginnings of the id's phases that a pod shows, in their order. The first of them is the
// begin.
func collectMarks(pod *Pod, id string) []mark {
	marks := make([]mark, 0, orderTerminating+1)
	add := func(m mark) {
		if last := len(marks) - 1; last >= 0 && m.at.Before(marks[last].at) {
			m.at = marks[last].at // a time in whole seconds, or of another clock
		}
		marks = append(marks, m)
	}
	for _, step := range [...]struct {
		prefix string
		phase  podstate.Phase
		order  int
	}{
		{appsv1alpha1.BeganLabelPrefix, podstate.PhasePreCheck, orderPreCheck},
		{appsv1alpha1.PreCheckedLabelPrefix, podstate.PhasePreparing, orderPreparing},
		{appsv1alpha1.OperateLabelPrefix, podstate.PhaseOperating, orderOperating},
		{appsv1alpha1.OperatedLabelPrefix, podstate.PhasePostCheck, orderPostCheck},
		{appsv1alpha1.PostCheckedLabelPrefix, podstate.PhaseCompleting, orderCompleting},
	} {
		value, ok := lifecycle.Value(pod.Labels, step.prefix, id)
		if at, isTime := lifecycle.ParseTime(value); ok && isTime {
			add(mark{step.phase, step.order, at})
		}
	}
	if !pod.Terminating.IsZero() {
		add(mark{podstate.PhaseTerminating, orderTerminating, pod.Terminating})
	}
	return marks
}
