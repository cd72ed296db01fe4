package decisionlog

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the lines of a Writer.
type Metrics struct {
	dropped prometheus.Counter
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "podops_decision_log_dropped_total",
		Help: "Lines of the decision log that were lost because the disk is too slow or full; 0 without a log. On every replica.",
	})}
	if err := registry.Register(m.dropped); err != nil {
		return nil, fmt.Errorf("registering the metric of the decision log: %w", err)
	}
	return m, nil
}
