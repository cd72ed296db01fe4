// Package budgetuse measures how many pods the PodDisruptionBudgets of controlled pods let PodOps take off traffic,
// and how many it has. Its numbers follow each change of a pod, and a scrape costs time for the
// PodDisruptionBudgets that have series.
package budgetuse

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// Bounds of the PodDisruptionBudgets that have series of their own, three each. Others have none.
const (
	maxPerNamespace = 100
	maxInAll        = 2000
)

// Metrics is the podindex.BudgetObserver that measures. Every replica keeps the numbers; only the leader has the
// series. It is safe for concurrent use.
type Metrics struct {
	clock clock.PassiveClock
	pods  *prometheus.Desc

	mu sync.Mutex
	// leads is closed once this replica leads; nil before Lead.
	leads   <-chan struct{}
	names   *metricseries.Names
	budgets map[types.NamespacedName]*budget
}

// budget is one PodDisruptionBudget with series.
type budget struct {
	counts       podindex.DisruptionCounts
	uncontrolled evaluation.Uncontrolled
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer, clk clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{
		clock: clk,
		pods: prometheus.NewDesc("podops_poddisruptionbudget_pods",
			"Pods of a PodDisruptionBudget that has controlled pods: how many may be unavailable (allowed), how many are off traffic because of "+
				"PodOps, from their permit on (in_use), and how many more may get a permit now (left). allowed and left are 0 while the "+
				"status of the PodDisruptionBudget is of an older generation, or SyncFailed.",
			[]string{"namespace", "poddisruptionbudget", "state"}, nil),
		names:   metricseries.NewNames(metricseries.Limits{PerNamespace: maxPerNamespace, InAll: maxInAll}),
		budgets: map[types.NamespacedName]*budget{},
	}
	if err := registry.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of PodDisruptionBudgets: %w", err)
	}
	return m, nil
}

// Lead has Metrics show its numbers from the moment on that elected is closed.
func (m *Metrics) Lead(elected <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leads = elected
}

// BudgetChanged implements podindex.BudgetObserver.
func (m *Metrics) BudgetChanged(counts podindex.DisruptionCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: counts.Namespace, Name: counts.Name}
	if counts.Counted == 0 {
		m.drop(key)
		return
	}
	if known := m.budgets[key]; known != nil {
		known.counts = counts
		return
	}
	// The value of a PodDisruptionBudget named like Other would not show whether it has a place.
	if key.Name != metricseries.Other && m.names.Value(key.Namespace, key.Name) == key.Name {
		m.budgets[key] = &budget{counts: counts}
	}
}

// BudgetDeleted implements podindex.BudgetObserver.
func (m *Metrics) BudgetDeleted(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
}

// drop ends the series of a PodDisruptionBudget. The caller holds the lock.
func (m *Metrics) drop(key types.NamespacedName) {
	if m.budgets[key] != nil {
		delete(m.budgets, key)
		m.names.Release(key.Namespace, key.Name)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(into chan<- *prometheus.Desc) { into <- m.pods }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(into chan<- prometheus.Metric) {
	for key, states := range m.states() {
		for state, pods := range states {
			into <- prometheus.MustNewConstMetric(m.pods, prometheus.GaugeValue, float64(pods), key.Namespace, key.Name, state)
		}
	}
}

// states returns the numbers of pods by the value of the label state; none on a replica that does not lead.
func (m *Metrics) states() map[types.NamespacedName]map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.leads:
	default:
		return nil
	}
	now := m.clock.Now()
	all := make(map[types.NamespacedName]map[string]int, len(m.budgets))
	for key, b := range m.budgets {
		b.uncontrolled = b.uncontrolled.After(b.counts.Uncontrolled(), now)
		states := map[string]int{"allowed": 0, "in_use": b.counts.OffTraffic, "left": 0}
		if b.counts.Unknown == "" {
			states["allowed"] = max(0, b.counts.Total()-b.counts.Desired)
			states["left"] = max(0, b.counts.Available+b.uncontrolled.Settled-b.counts.Desired)
		}
		all[key] = states
	}
	return all
}
