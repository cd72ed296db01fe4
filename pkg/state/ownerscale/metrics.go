package ownerscale

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of reads: the values of the label result. They never change.
const (
	// resultCounted means that the numbers were read.
	resultCounted = "counted"

	// resultNoScale means that the kind has no scale subresource.
	resultNoScale = "no_scale"

	// resultGone means that there is no such object.
	resultGone = "gone"

	// resultWaiting means that the objects of the kind are still being listed.
	resultWaiting = "waiting"

	// resultFailed means that the numbers cannot be read.
	resultFailed = "failed"
)

// Metrics counts the reads of a Reader.
type Metrics struct {
	reads   *prometheus.CounterVec
	watches prometheus.Gauge
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_owner_scale_reads_total",
			Help: "Reads of the scale of owners of pods: counted, no_scale (the kind has none), gone, waiting (for the list of the kind), or failed.",
		}, []string{"result"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_owner_kinds_watched", Help: "Kinds of owners whose metadata is watched.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.reads, m.watches} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of owners: %w", err)
		}
	}
	return m, nil
}
