package export

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why spans are dropped: the values of the label reason. They never change.
const (
	// dropFull means that the queue, or the share of the namespace in it, was full.
	dropFull = "full"

	// dropFailed means that the receiver did not accept the spans.
	dropFailed = "failed"

	// dropStopped means that the manager ended before the spans were sent.
	dropStopped = "stopped"
)

// Metrics count spans.
type Metrics struct {
	exported prometheus.Counter
	dropped  map[string]prometheus.Counter
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	exported := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "podops_trace_spans_exported_total", Help: "Spans that the OTLP receiver has accepted; 0 without --otlp-traces-endpoint. On every replica.",
	})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_trace_spans_dropped_total",
		Help: "Spans that were lost: the queue or the share of a namespace in it was full (full), the receiver did not accept them " +
			"(failed), or the manager ended first (stopped). On every replica.",
	}, []string{"reason"})
	for _, collector := range []prometheus.Collector{exported, dropped} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of traces: %w", err)
		}
	}
	m := &Metrics{exported: exported, dropped: map[string]prometheus.Counter{}}
	for _, reason := range []string{dropFull, dropFailed, dropStopped} {
		m.dropped[reason] = dropped.WithLabelValues(reason)
	}
	return m, nil
}
