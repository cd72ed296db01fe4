package metricseries

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxNamespaces is how many namespaces have series of their own in a metric. All others together are Other.
const MaxNamespaces = 500

// NamespaceCounter is a counter with the label namespace, and one other label with few values or none. A namespace has
// the series of all values from Begin on, since no query sees the first increase of a series that begins with
// it. It is safe for concurrent use.
type NamespaceCounter struct {
	counts *prometheus.CounterVec
	values [][]string

	mu    sync.Mutex
	names *Names
}

// NewNamespaceCounter returns a NamespaceCounter with a second label, in which only the series of Other exist.
func NewNamespaceCounter(opts prometheus.CounterOpts, label string, values []string) *NamespaceCounter {
	var each [][]string
	for _, value := range values {
		each = append(each, []string{value})
	}
	return newNamespaceCounter(opts, []string{"namespace", label}, each)
}

// NewPlainNamespaceCounter returns a NamespaceCounter with the label namespace alone, in which only the series of Other exists.
func NewPlainNamespaceCounter(opts prometheus.CounterOpts) *NamespaceCounter {
	return newNamespaceCounter(opts, []string{"namespace"}, [][]string{nil})
}

func newNamespaceCounter(opts prometheus.CounterOpts, labels []string, values [][]string) *NamespaceCounter {
	c := &NamespaceCounter{
		counts: prometheus.NewCounterVec(opts, labels), values: values, names: NewNames(Limits{PerNamespace: 1, InAll: MaxNamespaces}),
	}
	c.create(Other)
	return c
}

func (c *NamespaceCounter) create(namespace string) {
	for _, value := range c.values {
		c.counts.WithLabelValues(append([]string{namespace}, value...)...)
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

// Inc counts under a namespace, or under Other if the namespace has no series, and under the value of the second label if
// there is one.
func (c *NamespaceCounter) Inc(namespace string, value ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.WithLabelValues(append([]string{c.names.Lookup(namespace, namespace)}, value...)...).Inc()
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
