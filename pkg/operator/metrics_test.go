package operator

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := NewMetrics(registry, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(registry, logr.Discard()); err == nil {
		t.Error("metrics are registered a second time")
	}
}
