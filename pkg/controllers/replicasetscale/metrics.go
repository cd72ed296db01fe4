package replicasetscale

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics counts the ReplicaSets whose scale-down waits. It is safe for concurrent use.
type Metrics struct {
	kept prometheus.Gauge

	mu   sync.Mutex
	sets map[types.NamespacedName]bool
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_scale_downs_kept",
			Help: "ReplicaSets that have more pods than requested, until these may be deleted.",
		}),
		sets: map[types.NamespacedName]bool{},
	}
	if err := registry.Register(m.kept); err != nil {
		return nil, fmt.Errorf("registering the metric of kept scale-downs: %w", err)
	}
	return m, nil
}

// see counts a ReplicaSet, or does not any more.
func (m *Metrics) see(set types.NamespacedName, isKept bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isKept {
		m.sets[set] = true
	} else {
		delete(m.sets, set)
	}
	m.kept.Set(float64(len(m.sets)))
}
