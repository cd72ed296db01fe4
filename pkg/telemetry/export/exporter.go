package export

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// maxQueued and maxOfNamespace bound the spans that wait: about 8 MiB. A lifecycle has about 20 spans.
	maxQueued, maxOfNamespace = 8192, 2048

	// batch bounds the spans of one request, and delay the time for which a span waits for others.
	batch = 512
	delay = time.Second

	// tryTimeout bounds one request, and exportTimeout a batch with all of its tries.
	tryTimeout    = 5 * time.Second
	exportTimeout = 20 * time.Second

	// flushFor bounds the requests after the manager was stopped.
	flushFor = 2 * time.Second

	// maxError bounds a logged failure, which has the body of the response.
	maxError = 512

	// reportEvery is the least time between two lines of the log about failed exports.
	reportEvery = time.Minute
)

// Uploader sends encoded spans. It is an otlptrace.Client.
type Uploader interface {
	UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error
}

// NewClient returns a client of the OTLP receiver at a URL. Headers and certificates come from the environment
// variables OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE and the other variables that the
// OpenTelemetry specification lists.
func NewClient(url string) otlptrace.Client {
	return otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(url), otlptracehttp.WithTimeout(tryTimeout), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportTimeout,
		}),
	)
}

// Exporter sends the spans of a queue. It is safe for concurrent use.
type Exporter struct {
	client   Uploader
	resource []attribute.KeyValue
	metrics  *Metrics
	clock    clock.Clock
	wake     chan struct{}

	// reported is when the last failure was logged. Only Start uses it.
	reported time.Time

	mu    sync.Mutex
	queue *queue
}

// New returns an Exporter of a resource's spans. Start sends them.
func New(client Uploader, resource []attribute.KeyValue, metrics *Metrics, clk clock.Clock) *Exporter {
	return &Exporter{
		client: client, resource: resource, metrics: metrics, clock: clk, wake: make(chan struct{}, 1),
		queue: newQueue(limits{all: maxQueued, namespace: maxOfNamespace}),
	}
}

// Add queues spans. It never blocks.
func (e *Exporter) Add(spans []tracing.Span) {
	if len(spans) == 0 {
		return
	}
	e.mu.Lock()
	dropped := 0
	for _, span := range spans {
		dropped += e.queue.add(span)
	}
	e.mu.Unlock()
	e.metrics.dropped[dropFull].Add(float64(dropped))
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a leader's last spans are sent after
// it has ceased to lead.
func (e *Exporter) NeedLeaderElection() bool { return false }

// Start sends spans until ctx ends, and then the queued spans for at most flushFor.
func (e *Exporter) Start(ctx context.Context) error {
	log := ctrllog.FromContext(ctx).WithName("traces")
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		defer cancel()
		select {
		case <-e.clock.After(flushFor):
		case <-sending.Done():
		}
	})()
	for e.await(ctx) {
		e.send(sending, log)
	}
	for sending.Err() == nil && e.send(sending, log) {
		continue
	}
	e.metrics.dropped[dropStopped].Add(float64(len(e.take(maxQueued))))
	return nil
}

// await returns once there is a batch to send, or a part of a batch that has waited for others. It returns false when ctx
// ends.
func (e *Exporter) await(ctx context.Context) bool {
	var due <-chan time.Time
	for {
		switch queued := e.queued(); {
		case queued >= batch:
			return ctx.Err() == nil
		case queued > 0 && due == nil:
			due = e.clock.After(delay)
		}
		select {
		case <-e.wake:
		case <-due:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (e *Exporter) queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.size
}

func (e *Exporter) take(n int) []tracing.Span {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.take(n)
}

// send sends a batch, and reports whether there was any span. A batch that the receiver does not accept is dropped: its
// client has repeated it.
func (e *Exporter) send(ctx context.Context, log logr.Logger) bool {
	spans := e.take(batch)
	if len(spans) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if err := e.client.UploadTraces(ctx, encode(e.resource, spans)); err != nil {
		e.metrics.dropped[dropFailed].Add(float64(len(spans)))
		if now := e.clock.Now(); e.reported.IsZero() || now.Sub(e.reported) >= reportEvery {
			e.reported = now
			log.Error(errors.New(text.Line("sending spans: "+err.Error(), maxError)), "Spans are lost: the OTLP receiver does not accept them", "spans", len(spans))
		}
		return true
	}
	e.metrics.exported.Add(float64(len(spans)))
	return true
}
