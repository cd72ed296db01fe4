package export

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/podops-dev/podops/pkg/core/tracing"
)

// scope names the source of the spans within a resource.
const scope = "github.com/podops-dev/podops/pkg/core/tracing"

// encode returns spans as messages of OTLP.
func encode(resource []attribute.KeyValue, spans []tracing.Span) []*tracepb.ResourceSpans {
	encoded := make([]*tracepb.Span, len(spans))
	for i, span := range spans {
		encoded[i] = encodeSpan(span)
	}
	return []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: encodeAttributes(resource)},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: scope}, Spans: encoded}},
	}}
}

func encodeSpan(span tracing.Span) *tracepb.Span {
	encoded := &tracepb.Span{
		TraceId: span.Trace[:], SpanId: span.ID[:], Name: valid(span.Name), Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(span.Start.UnixNano()), EndTimeUnixNano: uint64(span.End.UnixNano()), //nolint:gosec // times after 1970
		Attributes: encodeAttributes(span.Attributes), Flags: uint32(trace.FlagsSampled),
	}
	if span.Parent.IsValid() {
		encoded.ParentSpanId = span.Parent[:]
	}
	if span.Call {
		encoded.Kind = tracepb.Span_SPAN_KIND_CLIENT
	}
	if span.Failure != "" {
		encoded.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: valid(span.Failure)}
	}
	return encoded
}

// encodeAttributes encodes texts and whole numbers: spans have no others.
func encodeAttributes(attributes []attribute.KeyValue) []*commonpb.KeyValue {
	encoded := make([]*commonpb.KeyValue, len(attributes))
	for i, a := range attributes {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: valid(a.Value.String())}}
		if a.Value.Type() == attribute.INT64 {
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		}
		encoded[i] = &commonpb.KeyValue{Key: string(a.Key), Value: value}
	}
	return encoded
}

// valid returns a text as UTF-8: a request with any other text cannot be encoded, and its spans of all namespaces
// would be lost.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
