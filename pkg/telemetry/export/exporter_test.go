package export

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/test/await"
	"github.com/podops-dev/podops/test/measured"
)

func phase(namespace, name string) tracing.Span {
	return tracing.Span{Namespace: namespace, Name: name}
}

func names(spans []tracing.Span) []string {
	list := []string{}
	for _, span := range spans {
		list = append(list, span.Namespace+"/"+span.Name)
	}
	return list
}

func TestQueue(t *testing.T) {
	detail := tracing.NameEvaluation
	for name, test := range map[string]struct {
		add     []tracing.Span
		dropped int
		want    []string
	}{
		"namespaces take turns": {
			[]tracing.Span{phase("a", "1"), phase("a", "2"), phase("b", "1"), phase("b", "2")}, 0,
			[]string{"a/1", "b/1", "a/2", "b/2"},
		},
		"a namespace loses its oldest spans beyond its share": {
			[]tracing.Span{phase("a", "1"), phase("a", "2"), phase("a", "3"), phase("a", "4")}, 1,
			[]string{"a/2", "a/3", "a/4"},
		},
		"details go first": {
			[]tracing.Span{phase("a", "1"), phase("a", detail), phase("a", "2"), phase("a", "3")}, 1,
			[]string{"a/1", "a/2", "a/3"},
		},
		"a full queue takes from the namespace with the most spans": {
			[]tracing.Span{phase("a", "1"), phase("a", "2"), phase("a", "3"), phase("b", "1"), phase("c", "1"), phase("b", "2")}, 1,
			[]string{"a/2", "b/1", "c/1", "a/3", "b/2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, dropped := newQueue(limits{all: 5, namespace: 3}), 0
			for _, span := range test.add {
				dropped += q.add(span)
			}
			if dropped != test.dropped {
				t.Errorf("%d spans dropped, want %d", dropped, test.dropped)
			}
			if diff := cmp.Diff(test.want, names(q.take(10))); diff != "" {
				t.Errorf("spans differ (-want +got):\n%s", diff)
			}
			if q.size != 0 || len(q.tenants) != 0 || len(q.turns) != 0 {
				t.Errorf("an empty queue has %d spans of %d namespaces in %d turns", q.size, len(q.tenants), len(q.turns))
			}
		})
	}
}

// receiver is an OTLP receiver.
type receiver struct {
	*httptest.Server
	requests chan *coltracepb.ExportTraceServiceRequest
	headers  chan http.Header
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{requests: make(chan *coltracepb.ExportTraceServiceRequest, 16), headers: make(chan http.Header, 16)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := gzip.NewReader(request.Body)
		if err != nil {
			t.Error(err)
			return
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
			return
		}
		var decoded coltracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(content, &decoded); err != nil {
			t.Error(err)
			return
		}
		r.requests <- &decoded
		r.headers <- request.Header
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(r.Close)
	return r
}

// started runs an exporter, and returns a function that stops it and waits for its end.
func started(t *testing.T, exporter *Exporter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- exporter.Start(ctx) }()
	return func() {
		cancel()
		if err := await.Receive(t, "the exporter ends", ended); err != nil {
			t.Error(err)
		}
	}
}

func newMetrics(t *testing.T) (*prometheus.Registry, *Metrics) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return registry, metrics
}

func TestSpansReachAReceiver(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
	receiver := newReceiver(t)
	registry, metrics := newMetrics(t)
	exporter := New(NewClient(receiver.URL+"/v1/traces"), []attribute.KeyValue{attribute.String("service.name", "podops")}, metrics, clock.RealClock{})
	stop := started(t, exporter)
	at := time.Unix(1_700_000_000, 0)
	exporter.Add([]tracing.Span{
		{Trace: trace.TraceID{1}, ID: trace.SpanID{2}, Namespace: "shop", Name: "lifecycle upgrade", Start: at, End: at.Add(time.Second)},
		{
			Trace: trace.TraceID{1}, ID: trace.SpanID{3}, Parent: trace.SpanID{2}, Namespace: "shop", Name: tracing.NamePost, Call: true, Failure: "no answer",
			Start: at, End: at, Attributes: []attribute.KeyValue{attribute.String("k8s.pod.name", "web-0"), attribute.Int("podops.pods", 3)},
		},
	})
	request := await.Receive(t, "a request", receiver.requests)
	stop()
	spans := request.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 2 || request.GetResourceSpans()[0].GetResource().GetAttributes()[0].GetValue().GetStringValue() != "podops" {
		t.Fatalf("received %v", request)
	}
	root, call := spans[0], spans[1]
	if root.GetParentSpanId() != nil || root.GetName() != "lifecycle upgrade" || root.GetKind() != tracepb.Span_SPAN_KIND_INTERNAL ||
		root.GetStartTimeUnixNano() != 1_700_000_000e9 || root.GetEndTimeUnixNano() != 1_700_000_001e9 || root.GetStatus() != nil {
		t.Errorf("the root span is %v", root)
	}
	if fmt.Sprintf("%x in %x of %x", call.GetSpanId(), call.GetParentSpanId(), call.GetTraceId()) != "0300000000000000 in 0200000000000000 of 01000000000000000000000000000000" ||
		call.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || call.GetStatus().GetMessage() != "no answer" ||
		call.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || call.GetAttributes()[1].GetValue().GetIntValue() != 3 {
		t.Errorf("the span of the call is %v", call)
	}
	if got := await.Receive(t, "its headers", receiver.headers).Get("Authorization"); got != "Bearer secret" {
		t.Errorf("the header Authorization is %q", got)
	}
	if diff := cmp.Diff(map[string]float64{"": 2}, measured.Values(t, registry, "podops_trace_spans_exported_total")); diff != "" {
		t.Errorf("exported spans differ (-want +got):\n%s", diff)
	}
}

// A message of OTLP has valid UTF-8 only. A text that is none, of one namespace, must not cost the spans of the others
// in the request.
func TestATextThatIsNoUTF8CostsNoSpan(t *testing.T) {
	receiver := newReceiver(t)
	_, metrics := newMetrics(t)
	exporter := New(NewClient(receiver.URL+"/v1/traces"), nil, metrics, clock.RealClock{})
	exporter.Add([]tracing.Span{
		{Namespace: "hostile", Name: "lifecycle \xff", Failure: "\xff", Attributes: []attribute.KeyValue{attribute.String("server.address", "\xff.example")}},
		phase("shop", "PreCheck"),
	})
	started(t, exporter)() // the flush sends them
	select {
	case request := <-receiver.requests:
		if got := len(request.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()); got != 2 {
			t.Errorf("received %d spans, want 2", got)
		}
	default:
		t.Error("the receiver has got no span")
	}
}

// blocked is a receiver that does not answer.
type blocked struct{ requests atomic.Int32 }

func (b *blocked) UploadTraces(ctx context.Context, _ []*tracepb.ResourceSpans) error {
	b.requests.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// TestAReceiverThatHangs shows that spans beyond the bound are dropped and counted while a request hangs, and that the end
// of the manager waits for the bound of the flush and no longer.
func TestAReceiverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, metrics := newMetrics(t)
		receiver := &blocked{}
		exporter := New(receiver, nil, metrics, clock.RealClock{})
		stop := started(t, exporter)
		add := func(spans int) {
			for range spans {
				exporter.Add([]tracing.Span{phase("shop", "PreCheck")})
			}
			synctest.Wait()
		}
		begin := time.Now()
		if add(batch - 1); receiver.requests.Load() != 0 {
			t.Error("a part of a batch is sent at once")
		}
		if add(1); receiver.requests.Load() != 1 {
			t.Errorf("%d requests, want a whole batch at once", receiver.requests.Load())
		}
		add(maxOfNamespace + 100)
		exporter.Add([]tracing.Span{phase("other", "PreCheck")})
		if stop(); time.Since(begin) != flushFor || receiver.requests.Load() != 1 {
			t.Errorf("it ended after %s and %d requests, want %s and 1", time.Since(begin), receiver.requests.Load(), flushFor)
		}
		want := map[string]float64{"reason=full": 100, "reason=failed": batch, "reason=stopped": maxOfNamespace + 1}
		if diff := cmp.Diff(want, measured.Values(t, registry, "podops_trace_spans_dropped_total")); diff != "" {
			t.Errorf("dropped spans differ (-want +got):\n%s", diff)
		}
	})
}

// failing is a receiver that accepts nothing.
type failing struct{ requests atomic.Int32 }

func (f *failing) UploadTraces(context.Context, []*tracepb.ResourceSpans) error {
	f.requests.Add(1)
	return errors.New("connection refused")
}

func TestSpansThatAReceiverDoesNotAcceptAreCounted(t *testing.T) {
	registry, metrics := newMetrics(t)
	receiver := &failing{}
	exporter := New(receiver, nil, metrics, clock.RealClock{})
	exporter.Add([]tracing.Span{phase("shop", "PreCheck"), phase("shop", "Preparing")})
	started(t, exporter)() // the flush sends them
	want := map[string]float64{"reason=full": 0, "reason=failed": 2, "reason=stopped": 0}
	if diff := cmp.Diff(want, measured.Values(t, registry, "podops_trace_spans_dropped_total")); diff != "" || receiver.requests.Load() != 1 {
		t.Errorf("%d requests; dropped spans differ (-want +got):\n%s", receiver.requests.Load(), diff)
	}
}

func TestOnlyTheLeaderExportsSpansOfPods(t *testing.T) {
	_, metrics := newMetrics(t)
	exporter, elected := New(&failing{}, nil, metrics, clock.RealClock{}), make(chan struct{})
	tracer := NewTracer(exporter, 1, elected, clock.RealClock{})
	pod := &tracing.Pod{Namespace: "shop", Name: "web-0", UID: "u-0", Labels: map[string]string{appsv1alpha1.BeganLabelPrefix + "/me": "1700000000000000000"}}
	tracer.Changed(pod, nil)
	if got := exporter.queued(); got != 0 {
		t.Errorf("a replica that does not lead has queued %d spans", got)
	}
	close(elected)
	tracer.Changed(pod, nil)
	if got := exporter.queued(); got != 2 {
		t.Errorf("the leader has queued %d spans, want the phase and the lifecycle", got)
	}
}

func TestTracesThatAreNotSampledAreNotExported(t *testing.T) {
	_, metrics := newMetrics(t)
	exporter, elected := New(&failing{}, nil, metrics, clock.RealClock{}), make(chan struct{})
	close(elected)
	tracer := NewTracer(exporter, 0, elected, clock.RealClock{})
	labels := map[string]string{appsv1alpha1.BeganLabelPrefix + "/me": "1700000000000000000"}
	tracer.Changed(&tracing.Pod{Namespace: "shop", Name: "web-0", UID: "u-0", Labels: labels}, nil)
	of := tracer.Lifecycles([]rule.Request{{ID: "me", Pod: &rule.PodFact{UID: "u-0", Labels: labels}}})
	if got := exporter.queued(); got != 0 || len(of) != 0 {
		t.Errorf("%d spans are queued, and %d lifecycles have a trace, want none", got, len(of))
	}
}

// refusing is a receiver that explains at length why it accepts nothing.
type refusing struct{}

func (refusing) UploadTraces(context.Context, []*tracepb.ResourceSpans) error {
	return fmt.Errorf("body: %s\x1b[31m", strings.Repeat("no ", 1<<20))
}

func TestALoggedFailureIsBounded(t *testing.T) {
	_, metrics := newMetrics(t)
	exporter := New(refusing{}, nil, metrics, clock.RealClock{})
	exporter.Add([]tracing.Span{phase("shop", "PreCheck")})
	var logged strings.Builder
	log := funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{})
	if !exporter.send(t.Context(), log) || logged.Len() == 0 || logged.Len() > 1024 {
		t.Errorf("%d bytes are logged, want a line", logged.Len())
	}
}
