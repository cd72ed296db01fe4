package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestPageHasTheMetricsOfTheManager(t *testing.T) {
	want, err := page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is out of date, run make docs (-want +got):\n%s", diff)
	}
}

func TestMetricsAreDescribed(t *testing.T) {
	own := &recorder{}
	own.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: `A "quoted", one | two.`}, []string{"reason", "stage"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "b_seconds", Help: "B."}, []string{"phase"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "c_total", Help: "C."}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "d", Help: "D.", ConstLabels: prometheus.Labels{"version": `a"},b`, "commit": "c"},
		}, func() float64 { return 1 }),
	)
	got, err := render(own.metrics, []metric{{name: "go_x", help: "X."}, {name: "queue", labels: []string{"name"}, help: "Q."}},
		[]group{{"All?", []string{"a_total", "b_seconds", "c_total", "d"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "## All?\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n" +
		"| `a_total` | counter | reason, stage | A \"quoted\", one \\| two. |\n" +
		"| `b_seconds` | histogram | phase | B. |\n| `c_total` | counter |  | C. |\n| `d` | gauge | commit, version | D. |\n"
	if !strings.Contains(got, want) || !strings.HasSuffix(got, "| `queue` | name | Q. |\n") || strings.Contains(got, "go_x") {
		t.Errorf("page:\n%s\nwant in it:\n%s", got, want)
	}
}

func TestPageNamesTheFileToEditForMetricsWithoutAGroup(t *testing.T) {
	_, err := render([]metric{{name: "new"}}, nil, []group{{"All?", []string{"gone"}}})
	for _, want := range []string{"new is in no group", "gone, which is no metric", "hack/metricsdoc/groups.go"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one with %q", err, want)
		}
	}
}
