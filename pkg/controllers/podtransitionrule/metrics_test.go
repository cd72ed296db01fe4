package podtransitionrule

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
	"github.com/podops-dev/podops/test/measured"
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

// series returns the series of rules of a namespace.
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
				if label.GetName() == "namespace" && label.GetValue() == namespace && len(metric.GetLabel()) > 2 {
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

func TestPermitsAndBudgetsInUse(t *testing.T) {
	s := newHarness(t, opa.Options{})
	var registry *prometheus.Registry
	s.reconciler.metrics, registry = newMeasured(t)
	check := func(what, metric string, want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, measured.Values(t, registry, metric)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", what, metric, diff)
		}
	}
	const of = "namespace=default,podtransitionrule=web,"
	counts := func(desired, available, waiting, off float64) map[string]float64 {
		return map[string]float64{
			of + "state=desired": desired, of + "state=selected": desired, of + "state=available": available,
			of + "state=waiting": waiting, of + "state=off_traffic": off, of + "state=reserved": 0,
		}
	}
	s.rules("web", atMostUnavailable("two", "2"), enforced(atMostUnavailable("dry", "1"), appsv1alpha1.EnforcementDryRun))
	s.put(web(0).Obj(), web(1).Obj(), web(2).Obj(), web(3).Obj())
	s.round()
	check("at rest", "podops_podtransitionrule_pods", counts(4, 4, 0, 0))
	check("at rest", "podops_rule_unavailable_pods", map[string]float64{of + "rule=two": 0})
	check("at rest", "podops_rule_unavailable_pods_limit", map[string]float64{of + "rule=two": 2})

	s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj())
	s.round() // which permits two
	check("permitted", "podops_permits_total", map[string]float64{"stage=PreCheck": 2, "stage=PostCheck": 0})
	s.round()
	check("permitted", "podops_podtransitionrule_pods", counts(4, 2, 1, 2))
	check("permitted", "podops_rule_unavailable_pods", map[string]float64{of + "rule=two": 2})

	s.rules("web", labelled("approved", "approved"))
	s.round()
	check("without an availability rule", "podops_rule_unavailable_pods", nil)
	check("without an availability rule", "podops_rule_unavailable_pods_limit", nil)
	s.index.DeleteRule(types.NamespacedName{Namespace: "default", Name: "web"})
	s.round()
	check("deleted", "podops_podtransitionrule_pods", nil)
	if places := s.reconciler.metrics.names.Len(); places != 0 || len(s.reconciler.metrics.shown) != 0 {
		t.Errorf("%d names and the numbers %v of a deleted PodTransitionRule are kept", places, s.reconciler.metrics.shown)
	}
}

// TestANamespaceCountsItsWaivers shows that a namespace has its series before its first waiver, and until it is deleted.
func TestANamespaceCountsItsWaivers(t *testing.T) {
	s := newHarness(t, opa.Options{})
	var registry *prometheus.Registry
	s.reconciler.metrics, registry = newMeasured(t)
	of := func(namespace string) []float64 {
		var counts []float64
		for _, exception := range exceptions() {
			if count, ok := measured.Values(t, registry, "podops_rules_waived_total")["exception="+exception+",namespace="+namespace]; ok {
				counts = append(counts, count)
			}
		}
		return counts
	}
	expect := func(when string, want []float64) {
		t.Helper()
		if diff := cmp.Diff(want, of("default")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	s.rules("web", labelled("approved", "approved"))
	s.put(web(0).Obj())
	s.round()
	expect("before the namespace is seen", nil)
	s.index.SetNamespace("default", nil)
	s.round()
	expect("at first", []float64{0, 0, 0})
	s.reconciler.metrics.waived("default", rule.ExceptionMaxHold)
	s.round()
	expect("after a waiver", []float64{0, 1, 0})
	s.reconciler.deleteNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	expect("after the namespace was deleted", nil)
	s.round() // of the rules that are left for a moment
	expect("after another round", nil)
}

// TestSeriesWithFewValuesAreThereFromTheStart shows the counters of which an alert must see the first increase.
func TestSeriesWithFewValuesAreThereFromTheStart(t *testing.T) {
	_, registry := newMeasured(t)
	for metric, want := range map[string]map[string]float64{
		"podops_holds_expired_total": {"action=Undo": 0, "action=Release": 0},
		"podops_rules_waived_total": {
			"exception=BreakGlass,namespace=other": 0, "exception=MaxHold,namespace=other": 0, "exception=Revision,namespace=other": 0,
		},
		"podops_rounds_gave_way_total": {"cause=budget": 0, "cause=share": 0, "cause=memory": 0, "cause=gone": 0},
	} {
		if diff := cmp.Diff(want, measured.Values(t, registry, metric)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", metric, diff)
		}
	}
}
