package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Names of spans. The names of phases are the values of podstate.Phase.
const (
	// NameLifecycle begins the name of a trace's root span, which the type of the operation ends.
	NameLifecycle = "lifecycle"

	// NameEvaluation is the span name of a rule evaluation.
	NameEvaluation = "evaluation"

	// NamePost and NamePoll are the span names of webhook rules' calls.
	NamePost = "webhook POST"
	NamePoll = "webhook poll"
)

// Keys of attributes.
const (
	keyNamespace     = attribute.Key("k8s.namespace.name")
	keyPod           = attribute.Key("k8s.pod.name")
	keyUID           = attribute.Key("k8s.pod.uid")
	keyWorkload      = attribute.Key("podops.workload")
	keyOperation     = attribute.Key("podops.operation.id")
	keyOperationType = attribute.Key("podops.operation.type")
	keyOutcome       = attribute.Key("podops.outcome")
	keyWithheldBy    = attribute.Key("podops.rules.withheld")
	keyReason        = attribute.Key("podops.reason")
	keyReasonRule    = attribute.Key("podops.reason.rule")
	keyRule          = attribute.Key("podops.rule")
	keyStage         = attribute.Key("podops.stage")
	keyDecision      = attribute.Key("podops.decision.id")
	keyPods          = attribute.Key("podops.pods")
	keyCall          = attribute.Key("podops.webhook.trace_id")
	keyServer        = attribute.Key("server.address")
	keyFailure       = attribute.Key("error.type")
)

// maxText bounds the texts of attributes that users choose.
const maxText = 256

// Span is one span of a trace, as a value.
type Span struct {
	Trace trace.TraceID
	ID    trace.SpanID

	// Parent is zero for the root span.
	Parent trace.SpanID

	// Namespace is the namespace of the pod.
	Namespace string

	Name       string
	Start, End time.Time

	// Call is whether the span is a request to a server.
	Call bool

	// Failure is empty, or why the evaluation or the call failed.
	Failure string

	Attributes []attribute.KeyValue
}

// IsDetail reports whether a span is part of a phase: a full queue loses such spans first.
func (s Span) IsDetail() bool {
	return s.Name == NameEvaluation || s.Name == NamePost || s.Name == NamePoll
}

// TraceParent returns the value of the W3C header traceparent for requests within a span.
func (s Span) TraceParent() string {
	return "00-" + s.Trace.String() + "-" + s.ID.String() + "-01"
}

// bounded returns an attribute with a text that users choose.
func bounded(key attribute.Key, value string) attribute.KeyValue {
	return key.String(text.Cut(value, maxText))
}

// ended returns a span that does not end before it starts: the clocks of two managers may differ.
func ended(s Span) Span {
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	return s
}
