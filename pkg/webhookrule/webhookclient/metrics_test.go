package webhookclient

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/test/await"
)

func TestCallsAreCounted(t *testing.T) {
	b := start(t, double{post: func(_ context.Context, _ Endpoint, request PostRequest) (webhooktask.PostAnswer, error) {
		if request.TraceID == "bad" {
			return webhooktask.PostAnswer{}, fail(ClassHTTPStatus, "HTTP 500")
		}
		return webhooktask.PostAnswer{Success: true}, nil
	}}, PoolOptions{})
	b.submit(t, callOf("good", "shop", "h"), callOf("bad", "shop", "h"))
	b.next(t)
	b.next(t)
	for _, outcome := range []string{"Answered", "HTTPStatus"} {
		got := b.value(t, "podops_webhook_calls_total", "namespace", "shop", "podtransitionrule", "web", "rule", "approval", "host", "h:80", "kind", "post", "outcome", outcome)
		if got != 1 {
			t.Errorf("%s: %v calls, want 1", outcome, got)
		}
	}
}

func TestTheAgeOfTheOldestCallIsReported(t *testing.T) {
	b := start(t, double{post: hang}, PoolOptions{})
	if age := b.value(t, "podops_webhook_oldest_running_call_seconds"); age != 0 {
		t.Errorf("age %v without a call", age)
	}
	b.submit(t, callOf("a", "shop", "h"))
	await.Until(t, "it grows older", func() bool { return b.value(t, "podops_webhook_oldest_running_call_seconds") > 0.01 })
}

func TestMetricsOfARuleWithChangingHostsAreBounded(t *testing.T) {
	b := start(t, double{post: approve}, PoolOptions{})
	for i := range 20 {
		b.submit(t, callOf(fmt.Sprint(i), "shop", fmt.Sprintf("h%d", i)))
		b.next(t)
	}
	for _, name := range []string{"podops_webhook_calls_total", "podops_webhook_call_duration_seconds"} {
		if series := len(b.series(t, name)); series != maxHostsPerRule {
			t.Errorf("%s has %d series, want %d", name, series, maxHostsPerRule)
		}
	}
}

// TestGatheringDoesNotWaitForCounting checks that gathering does not wait for counting: counting
// may wait for a series that is being gathered. With some thousand series this was a deadlock.
func TestGatheringDoesNotWaitForCounting(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	gathered := make(chan error, 1)
	go func() {
		_, err := registry.Gather()
		gathered <- err
	}()
	if err := await.Receive(t, "gathering does not wait for a result that is being counted", gathered); err != nil {
		t.Error(err)
	}
}

// series returns the series of a metric that have all of the labels, given as names and values.
func (b *bench) series(t *testing.T, name string, labels ...string) []*dto.Metric {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []*dto.Metric
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			has := map[string]string{}
			for _, label := range metric.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			matches := true
			for i := 0; i < len(labels); i += 2 {
				matches = matches && has[labels[i]] == labels[i+1]
			}
			if matches {
				found = append(found, metric)
			}
		}
	}
	return found
}

func (b *bench) has(t *testing.T, name string, labels ...string) bool {
	t.Helper()
	return len(b.series(t, name, labels...)) > 0
}

// value returns the value of the only series that has the labels; -1 without one.
func (b *bench) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	for _, metric := range b.series(t, name, labels...) {
		return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return -1
}
