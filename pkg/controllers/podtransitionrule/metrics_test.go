package podtransitionrule

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/metricseries"
	"github.com/podops-dev/podops/pkg/rule"
)

func newMeasured(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

// series returns the series of a namespace.
func series(t *testing.T, registry *prometheus.Registry, namespace string) []*dto.Metric {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []*dto.Metric
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "namespace" && label.GetValue() == namespace {
					found = append(found, metric)
				}
			}
		}
	}
	return found
}

// use makes every series that a rule can have.
func use(m *Metrics, id rule.RuleID) {
	m.counted(id, appsv1alpha1.EnforcementEnforce, 1, 1, 0)
	m.late(id, 1)
	m.quarantine(id, true)
	m.running(id, 1, time.Unix(1, 0))
}

const seriesOfOne = 6 // that use makes

func ruleNo(namespace string, n int) rule.RuleID {
	return rule.RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("object-%d", n/10)}, Rule: fmt.Sprintf("rule-%d", n)}
}

func TestSeriesThatTenantsNameAreBounded(t *testing.T) {
	m, registry := newMeasured(t)
	for n := range 3 * maxMeasuredPerNamespace {
		use(m, ruleNo("loud", n))
	}
	if got, want := len(series(t, registry, "loud")), seriesOfOne*maxMeasuredPerNamespace; got != want {
		t.Errorf("one namespace has %d series, want %d", got, want)
	}
	other := series(t, registry, metricseries.Other)
	if len(other) != 3 { // evaluated, withheld and timeouts
		t.Errorf("%d series are shared, want 3: %v", len(other), other)
	}
	for _, metric := range other {
		if got, want := metric.GetCounter().GetValue(), float64(2*maxMeasuredPerNamespace); got != want {
			t.Errorf("a shared counter is %v, want %v", got, want)
		}
	}
	use(m, ruleNo("quiet", 0))
	if got := len(series(t, registry, "quiet")); got != seriesOfOne {
		t.Errorf("another namespace has %d series, want %d", got, seriesOfOne)
	}
}

func TestARuleThatGoesMakesRoom(t *testing.T) {
	m, registry := newMeasured(t)
	for n := range maxMeasuredPerNamespace {
		use(m, ruleNo("loud", n))
	}
	m.forget(ruleNo("loud", 0).Ruleset)
	if got, want := len(series(t, registry, "loud")), seriesOfOne*(maxMeasuredPerNamespace-10); got != want {
		t.Errorf("%d series are left, want %d", got, want)
	}
	use(m, ruleNo("loud", maxMeasuredPerNamespace))
	if got := len(series(t, registry, metricseries.Other)); got != 0 {
		t.Errorf("%d series are shared although there is room", got)
	}
}
