package export

import (
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
)

// Tracer derives the spans of pods, evaluations and calls, and queues those of the sampled traces. A nil Tracer derives
// none. It is safe for concurrent use.
type Tracer struct {
	exporter *Exporter
	share    float64
	elected  <-chan struct{}
	clock    clock.PassiveClock
}

// NewTracer returns a Tracer that exports a share of the traces, from 0 to 1. The spans of pods are exported from the
// moment on that elected is closed: every replica watches pods, and only the leader exports their spans.
func NewTracer(exporter *Exporter, share float64, elected <-chan struct{}, clk clock.PassiveClock) *Tracer {
	return &Tracer{exporter: exporter, share: share, elected: elected, clock: clk}
}

// Changed exports the spans that end with a change of a pod. A nil pod is absent.
func (t *Tracer) Changed(before, after *tracing.Pod) {
	select {
	case <-t.elected:
		t.add(tracing.Lifecycles(before, after, t.clock.Now()))
	default:
	}
}

// add queues the spans of sampled traces.
func (t *Tracer) add(spans []tracing.Span) {
	t.exporter.Add(slices.DeleteFunc(spans, func(s tracing.Span) bool { return !tracing.Sampled(s.Trace, t.share) }))
}

// Lifecycles returns the lifecycles of requests that have a sampled trace, in the order of the requests.
func (t *Tracer) Lifecycles(requests []rule.Request) []tracing.Lifecycle {
	if t == nil {
		return nil
	}
	var sampled []tracing.Lifecycle
	for _, request := range requests {
		if of, ok := tracing.LifecycleOfRequest(request); ok && tracing.Sampled(of.Trace, t.share) {
			sampled = append(sampled, of)
		}
	}
	return sampled
}

// Evaluated exports the spans of an evaluation.
func (t *Tracer) Evaluated(evaluation tracing.Evaluation, of []tracing.Lifecycle) {
	t.add(evaluation.Spans(of))
}

// Called exports the spans of a call that has ended now. class and message are empty, or describe its failure.
func (t *Tracer) Called(call tracing.Call, took time.Duration, class, message string) {
	if t == nil {
		return
	}
	now := t.clock.Now()
	t.add(call.Spans(now.Add(-took), now, class, message))
}
