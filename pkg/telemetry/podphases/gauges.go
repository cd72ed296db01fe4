package podphases

import "github.com/prometheus/client_golang/prometheus"

// gauges describe the metrics whose values are read at each scrape.
type gauges struct {
	pods    *prometheus.Desc
	oldest  *prometheus.Desc
	deletes *prometheus.Desc
}

func newGauges() gauges {
	return gauges{
		pods: prometheus.NewDesc("podops_pods",
			"Controlled pods by phase: Terminating, Finished, Operating (the operation may run), Preparing (traffic goes off), PostCheck and PreCheck "+
				"(rules withhold the pod, or are about to be evaluated), Completing (traffic comes back), Available, Offline (label stay-offline) or "+
				"Unavailable (no operation is the cause). Without a series there is no such pod.",
			[]string{"namespace", "phase"}, nil),
		oldest: prometheus.NewDesc("podops_pods_oldest_seconds",
			"For how long the pod that has been in the phase for the longest is in it. Without a series there is no such pod.",
			[]string{"namespace", "phase"}, nil),
		deletes: prometheus.NewDesc("podops_deletes_pending",
			"Pods of which PodOps holds a delete or an eviction. A namespace without a series has no such pod.", []string{"namespace"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (t *Tracker) Describe(into chan<- *prometheus.Desc) {
	into <- t.gauges.pods
	into <- t.gauges.oldest
	into <- t.gauges.deletes
}

// Collect implements prometheus.Collector. Its cost grows with the namespaces, and not with the pods.
func (t *Tracker) Collect(into chan<- prometheus.Metric) {
	now := t.clock.Now()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for namespace, sums := range t.summed() {
		for phase, count := range sums.pods {
			gauge(t.gauges.pods, float64(count), namespace, string(phase))
		}
		for phase, first := range sums.first {
			gauge(t.gauges.oldest, max(0, now.Sub(first).Seconds()), namespace, string(phase))
		}
		if sums.deletes > 0 {
			gauge(t.gauges.deletes, float64(sums.deletes), namespace)
		}
	}
}
