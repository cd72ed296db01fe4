package webhookserver

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the connections and reviews that the limits rejected.
type Metrics struct {
	refused            *prometheus.CounterVec
	connectionsRefused prometheus.Counter
	connectionsEvicted prometheus.Counter
	reviewsEvicted     prometheus.Counter
}

// NewMetrics registers the metrics of the server.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	connections := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_admission_connections_closed_total",
		Help: "Connections to the webhook port that were closed: of a source with too many or too fast connections (refused), or for another source (evicted). " +
			"On every replica.",
	}, []string{"reason"})
	m := &Metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_admission_reviews_refused_total",
			Help: "Admission reviews that were not handled, by reason: busy, evicted, read, timeout, too-large. On every replica.",
		}, []string{"reason"}),
		connectionsRefused: connections.WithLabelValues("refused"),
		connectionsEvicted: connections.WithLabelValues("evicted"),
		reviewsEvicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "podops_admission_reviews_evicted_total",
			Help: "Admission reviews that lost their memory to another source before they were handled. On every replica.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.refused, connections, m.reviewsEvicted} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	for _, reason := range []string{"busy", "evicted", "read", "timeout", "too-large"} {
		m.refused.WithLabelValues(reason)
	}
	return m, nil
}
