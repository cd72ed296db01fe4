package metricseries

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxNamespaces is how many namespaces have series of their own in a metric. All others together are Other.
const MaxNamespaces = 500

// NamespaceCounter is a counter with the label namespace and one label with few values. A namespace has
// the series of all values from Begin on, since no query sees the first increase of a series that begins with
// it. It is safe for concurrent use.
type NamespaceCounter struct {
	counts *prometheus.CounterVec
	values []string

	mu    sync.Mutex
	names *Names
}

// NewNamespaceCounter returns a NamespaceCounter in which only the series of Other exist.
func NewNamespaceCounter(opts prometheus.CounterOpts, label string, values []string) *NamespaceCounter {
	c := &NamespaceCounter{
		counts: prometheus.NewCounterVec(opts, []string{"namespace", label}), values: values,
		names: NewNames(Limits{PerNamespace: 1, InAll: MaxNamespaces}),
	}
	c.create(Other)
	return c
}

func (c *NamespaceCounter) create(namespace string) {
	for _, value := range c.values {
		c.counts.WithLabelValues(namespace, value)
	}
}

// Lacks reports whether Begin would create the series of a namespace.
func (c *NamespaceCounter) Lacks(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return namespace != Other && c.names.Lookup(namespace, namespace) == Other && c.names.Len() < MaxNamespaces
}

// Begin creates the series of a namespace, unless MaxNamespaces have theirs. A namespace keeps them until End. A
// namespace with the name Other shares the series of Other.
func (c *NamespaceCounter) Begin(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if namespace != Other && c.names.Value(namespace, namespace) != Other {
		c.create(namespace)
	}
}

// Inc counts under a namespace, or under Other if the namespace has no series.
func (c *NamespaceCounter) Inc(namespace, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.WithLabelValues(c.names.Lookup(namespace, namespace), value).Inc()
}

// End deletes the series of a namespace, so that another namespace can have series.
func (c *NamespaceCounter) End(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names.Release(namespace, namespace) {
		c.counts.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	}
}

// Describe implements prometheus.Collector.
func (c *NamespaceCounter) Describe(into chan<- *prometheus.Desc) { c.counts.Describe(into) }

// Collect implements prometheus.Collector.
func (c *NamespaceCounter) Collect(into chan<- prometheus.Metric) { c.counts.Collect(into) }
