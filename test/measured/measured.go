// Package measured reads the values of metrics in tests.
package measured

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Values returns the values of a metric by its labels, as "a=1,b=2" in the order of their names. The value of a
// histogram is the number of its observations. It is nil for a metric without series.
func Values(t testing.TB, registry prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	return read(t, registry, name, func(metric *dto.Metric) float64 {
		return metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
	})
}

// Sums returns the sums of the observations of a histogram by its labels, as Values does.
func Sums(t testing.TB, registry prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	return read(t, registry, name, func(metric *dto.Metric) float64 { return metric.GetHistogram().GetSampleSum() })
}

func read(t testing.TB, registry prometheus.Gatherer, name string, value func(*dto.Metric) float64) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gathering metrics: %v", err)
	}
	var values map[string]float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		values = map[string]float64{}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			values[strings.Join(labels, ",")] = value(metric)
		}
	}
	return values
}
