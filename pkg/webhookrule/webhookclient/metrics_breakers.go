package webhookclient

import "github.com/prometheus/client_golang/prometheus"

// openBreakers collects the circuit breakers that are not closed at each scrape, so that deleted
// breakers are not reported. Hosts without series of their own are counted together.
type openBreakers struct{ metrics *Metrics }

func (openBreakers) desc() *prometheus.Desc {
	return prometheus.NewDesc("podops_webhook_breaker_open",
		"Circuit breakers that are open or half-open after repeated failures of calls.", []string{"namespace", "host"}, nil)
}

// Describe implements prometheus.Collector.
func (c openBreakers) Describe(into chan<- *prometheus.Desc) { into <- c.desc() }

// Collect implements prometheus.Collector.
func (c openBreakers) Collect(into chan<- prometheus.Metric) {
	open := c.metrics.open.Load()
	if open == nil {
		return
	}
	counts := map[[2]string]int{}
	for at, count := range (*open)() {
		counts[[2]string{at[0], c.metrics.hostNames.Lookup(at[0], at[1])}] += count
	}
	for labels, count := range counts {
		into <- prometheus.MustNewConstMetric(c.desc(), prometheus.GaugeValue, float64(count), labels[:]...)
	}
}
