package tracing

import (
	"strconv"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// MaxTraces bounds the traces in which an evaluation for a batch of pods, or a call about them, has a span.
const MaxTraces = 64

// Evaluation is one evaluation of a rule that the decision log has.
type Evaluation struct {
	Rule  rule.RuleID
	Stage appsv1alpha1.TransitionStage

	// Decision is the id of the line in the decision log.
	Decision string

	// Pods is how many requests were evaluated.
	Pods int

	Start, End time.Time

	// Failure is empty, or the error of the evaluation.
	Failure string
}

// Spans returns the spans of an evaluation in the traces of lifecycles.
func (e Evaluation) Spans(of []Lifecycle) []Span {
	spans := make([]Span, 0, min(len(of), MaxTraces))
	for _, lifecycle := range of[:min(len(of), MaxTraces)] {
		span := lifecycle.in(e.Stage)
		span.ID, span.Name, span.Start, span.End = newSpanID(span.Trace, NameEvaluation, e.Decision), NameEvaluation, e.Start, e.End
		span.Failure = bounded(keyReason, e.Failure).Value.AsString()
		span.Attributes = append(span.Attributes,
			keyRule.String(ruleName(e.Rule)), keyStage.String(string(e.Stage)), keyDecision.String(e.Decision), keyPods.Int(e.Pods))
		spans = append(spans, ended(span))
	}
	return spans
}

// Call is one call of a webhook rule about pods.
type Call struct {
	Rule  rule.RuleID
	Stage appsv1alpha1.TransitionStage

	// Poll is whether the call polls the result of an earlier POST.
	Poll bool

	// TraceID is the field traceId of the POST, and Server the host of the service.
	TraceID, Server string

	// Submitted is when the call was queued. It distinguishes the polls of a task.
	Submitted time.Time

	// Of are the lifecycles that the call is about and that have a trace.
	Of []Lifecycle
}

// IsTraced reports whether a lifecycle of the call has a trace.
func (c Call) IsTraced() bool { return len(c.Of) > 0 }

// TraceParent returns the value of the call's header traceparent: its span in the first of the traces. Empty
// without a trace.
func (c Call) TraceParent() string {
	if !c.IsTraced() {
		return ""
	}
	return c.span(c.Of[0]).TraceParent()
}

// Spans returns the spans of a call that has ended. class and message are empty, or describe its failure.
func (c Call) Spans(start, end time.Time, class, message string) []Span {
	spans := make([]Span, 0, min(len(c.Of), MaxTraces))
	for _, lifecycle := range c.Of[:min(len(c.Of), MaxTraces)] {
		span := c.span(lifecycle)
		span.Start, span.End = start, end
		if class != "" {
			span.Failure = bounded(keyReason, message).Value.AsString()
			span.Attributes = append(span.Attributes, keyFailure.String(class))
		}
		spans = append(spans, ended(span))
	}
	return spans
}

// span returns the span of a call in the trace of a lifecycle, without times.
func (c Call) span(lifecycle Lifecycle) Span {
	span := lifecycle.in(c.Stage)
	span.Name, span.Call = NamePost, true
	if c.Poll {
		span.Name = NamePoll
	}
	span.ID = newSpanID(span.Trace, span.Name, c.TraceID, strconv.FormatInt(c.Submitted.UnixNano(), 10))
	span.Attributes = append(span.Attributes,
		keyRule.String(ruleName(c.Rule)), keyStage.String(string(c.Stage)), keyCall.String(c.TraceID), bounded(keyServer, c.Server),
		keyPods.Int(len(c.Of)))
	return span
}

// in returns a span within the phase in which a lifecycle waits for the rules of a stage.
func (l Lifecycle) in(stage appsv1alpha1.TransitionStage) Span {
	span := l.span()
	phase := podstate.PhasePreCheck
	if stage == appsv1alpha1.StagePostCheck {
		phase = podstate.PhasePostCheck
	}
	span.Parent = newSpanID(span.Trace, string(phase))
	return span
}

// ruleName returns the name of a rule as the decision log has it.
func ruleName(id rule.RuleID) string { return id.Ruleset.Namespace + "/" + id.String() }
