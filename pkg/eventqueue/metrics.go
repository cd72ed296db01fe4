package eventqueue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Why events are dropped: the values of the label reason. They never change.
const (
	// dropFull: more was recorded than fits, in the namespace or in all.
	dropFull = "full"

	// dropNamespaceGone: the namespace is deleted, or about to be.
	dropNamespaceGone = "namespace_gone"

	// dropRefused: the API server does not take it.
	dropRefused = "refused"

	// dropFailed: the API server could not be reached again and again.
	dropFailed = "failed"

	// dropInvalid: no event can be made of what was recorded.
	dropInvalid = "invalid"

	// dropStopped: the manager ended before.
	dropStopped = "stopped"
)

// Metrics count what a Queue does.
type Metrics struct {
	drops   *prometheus.CounterVec
	waiting prometheus.Gauge
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_events_dropped_total", Help: "Events that were recorded and not sent, by reason.",
		}, []string{"reason"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_events_queued", Help: "Events that wait to be sent.",
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
