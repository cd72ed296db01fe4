package metricseries_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/runtime/metricseries"
	"github.com/podops-dev/podops/test/measured"
)

func newCounter(t *testing.T) (*metricseries.NamespaceCounter, func() map[string]float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	counter := metricseries.NewNamespaceCounter(prometheus.CounterOpts{Name: "reads_total"}, "source", []string{"cache", "server"})
	if err := registry.Register(counter); err != nil {
		t.Fatal(err)
	}
	return counter, func() map[string]float64 { return measured.Values(t, registry, "reads_total") }
}

func TestANamespaceCounterCountsByNamespace(t *testing.T) {
	counter, values := newCounter(t)
	expect := func(when string, want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, values()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("at first", map[string]float64{"namespace=other,source=cache": 0, "namespace=other,source=server": 0})
	if !counter.Lacks("shop") {
		t.Error("a new namespace lacks nothing")
	}
	counter.Begin("shop")
	if counter.Lacks("shop") {
		t.Error("a namespace lacks series after Begin")
	}
	counter.Inc("shop", "cache")
	counter.Inc("new", "server")
	expect("counted", map[string]float64{
		"namespace=other,source=cache": 0, "namespace=other,source=server": 1, "namespace=shop,source=cache": 1, "namespace=shop,source=server": 0,
	})
	counter.Begin("shop")
	counter.Begin(metricseries.Other)
	counter.End(metricseries.Other)
	counter.End("new")
	counter.End("shop")
	expect("ended", map[string]float64{"namespace=other,source=cache": 0, "namespace=other,source=server": 1})
}

func TestNamespacesBeyondTheBoundCountAsOther(t *testing.T) {
	counter, values := newCounter(t)
	for i := range 2 * metricseries.MaxNamespaces {
		name := fmt.Sprint("ns-", i)
		counter.Begin(name)
		counter.Inc(name, "cache")
	}
	if got, want := len(values()), 2*metricseries.MaxNamespaces+2; got != want {
		t.Errorf("%d series, want %d", got, want)
	}
	if got := values()["namespace=other,source=cache"]; got != metricseries.MaxNamespaces {
		t.Errorf("%v of other namespaces, want %d", got, metricseries.MaxNamespaces)
	}
	if counter.Lacks("late") {
		t.Error("a namespace lacks series although none are left")
	}
	counter.End("ns-0")
	if !counter.Lacks("late") {
		t.Error("the place of a namespace that has ended is not free")
	}
	counter.Begin("late")
	counter.Inc("late", "server")
	if got := values()["namespace=late,source=server"]; got != 1 {
		t.Errorf("%v of a namespace with a free place, want 1", got)
	}
}

func TestAPlainNamespaceCounterHasNoOtherLabel(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := metricseries.NewPlainNamespaceCounter(prometheus.CounterOpts{Name: "reads_total"})
	if err := registry.Register(counter); err != nil {
		t.Fatal(err)
	}
	counter.Begin("shop")
	counter.Inc("shop")
	counter.Inc("new")
	want := map[string]float64{"namespace=other": 1, "namespace=shop": 1}
	if diff := cmp.Diff(want, measured.Values(t, registry, "reads_total")); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
