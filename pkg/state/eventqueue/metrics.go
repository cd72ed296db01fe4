package eventqueue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why events are dropped: the values of the label reason. They never change.
const (
	// dropFull means that the namespace, or all together, recorded more than fits.
	dropFull = "full"

	// dropNamespaceGone means that the namespace is deleted, or terminating.
	dropNamespaceGone = "namespace_gone"

	// dropRefused means that the API server rejected the event.
	dropRefused = "refused"

	// dropFailed means that the API server could not be reached repeatedly.
	dropFailed = "failed"

	// dropInvalid means that the recorded data make no valid event.
	dropInvalid = "invalid"

	// dropStopped means that the manager stopped first.
	dropStopped = "stopped"
)

// Metrics counts the events of a Queue.
type Metrics struct {
	drops   *prometheus.CounterVec
	waiting prometheus.Gauge
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_events_dropped_total",
			Help: "Events that were recorded and not sent: more than fits in the namespace or in all (full), of a deleted namespace (namespace_gone), " +
				"rejected by the API server (refused), without an answer of it again and again (failed), not valid (invalid), or recorded before the manager " +
				"stopped (stopped). On every replica.",
		}, []string{"reason"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_events_queued", Help: "Events that wait to be sent. On every replica.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.drops, m.waiting} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering a metric of events: %w", err)
		}
	}
	for _, reason := range []string{dropFull, dropNamespaceGone, dropRefused, dropFailed, dropInvalid, dropStopped} {
		m.drops.WithLabelValues(reason)
	}
	return m, nil
}

func (m *Metrics) dropped(reason string, count int) {
	if count > 0 {
		m.drops.WithLabelValues(reason).Add(float64(count))
	}
}

func (m *Metrics) queued(count int) { m.waiting.Set(float64(count)) }
