package podtransitionrule

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/evaluation"
	"github.com/podops-dev/podops/pkg/metricseries"
	"github.com/podops-dev/podops/pkg/rule"
)

// Bounds of the rules that have series of their own. A rule has at most 13 series, so all
// rules have at most 26,000.
const (
	maxMeasuredPerNamespace = 100
	maxMeasured             = 2000
)

// Metrics of rules. Their labels name the namespace, the PodTransitionRule and the rule; series
// are deleted with the PodTransitionRule. Names beyond the bounds are metricseries.Other:
// counters add up the rules with such names, and gauges leave them out.
type Metrics struct {
	names *metricseries.Names

	mu sync.Mutex
	// measured are the rules of each PodTransitionRule that may have series.
	measured map[types.NamespacedName]map[string]bool

	requests    *prometheus.CounterVec
	quarantined *prometheus.GaugeVec
	timeouts    *prometheus.CounterVec
	tasks       *prometheus.GaugeVec
	oldestTask  *prometheus.GaugeVec
	rounds      *prometheus.CounterVec
	waiting     prometheus.Gauge
	holds       *prometheus.CounterVec
	exceptions  *prometheus.CounterVec
}

// NewMetrics registers the metrics of rules.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	rule := []string{"namespace", "podtransitionrule", "rule"}
	m := &Metrics{
		names:    metricseries.NewNames(metricseries.Limits{PerNamespace: maxMeasuredPerNamespace, InAll: maxMeasured}),
		measured: map[types.NamespacedName]map[string]bool{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_requests_total",
			Help: "Requests that a rule applied to (evaluated), held back at least once (withheld), or would have held back were it enforced (would_withhold).",
		}, append(rule, "enforcement", "outcome")),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_rule_quarantined",
			Help: "1 while a rule is not evaluated any more because its module used up its CPU time again and again.",
		}, rule),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_timeouts_total",
			Help: "Evaluations of a rule that used up their CPU time without an answer.",
		}, rule),
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_webhook_tasks", Help: "Calls of a webhook rule that the service has not ended, including polled calls.",
		}, rule),
		oldestTask: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_webhook_oldest_task_start_seconds", Help: "When the oldest of podops_webhook_tasks began, in seconds since 1970; 0 without a task.",
		}, rule),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rounds_gave_way_total",
			Help: "Rounds that ended before all rules were evaluated, because their budget was used up (budget), " +
				"their namespace had used its share of CPU time (share), its rules and waiting pods were too many to be held (memory), " +
				"or it had no rules any more (gone).",
		}, []string{"cause"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_slow_namespaces_waiting", Help: "Namespaces that have used their share of CPU time and wait for a round.",
		}),
	}
	m.holds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_holds_expired_total",
		Help: "Deferred deletes and evictions that were held for as long as they may be, and cancelled (Undo) or let pass (Release).",
	}, []string{"action"})
	m.exceptions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_rules_waived_total",
		Help: "Requests that were granted although rules withhold them, because of a break-glass annotation (BreakGlass), " +
			"of maxHold (MaxHold) or of exemptRevisions (Revision).",
	}, []string{"exception"})
	collectors := []prometheus.Collector{m.requests, m.quarantined, m.timeouts, m.tasks, m.oldestTask, m.rounds, m.waiting, m.holds, m.exceptions}
	for _, collector := range collectors {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// labels returns the label values of a rule, and whether they are its own.
func (m *Metrics) labels(rule rule.RuleID) (values []string, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := rule.Ruleset.Name + "/" + rule.Rule
	if m.names.Value(rule.Ruleset.Namespace, name) != name {
		return []string{metricseries.Other, metricseries.Other, metricseries.Other}, false
	}
	if m.measured[rule.Ruleset] == nil {
		m.measured[rule.Ruleset] = map[string]bool{}
	}
	m.measured[rule.Ruleset][name] = true
	return []string{rule.Ruleset.Namespace, rule.Ruleset.Name, rule.Rule}, true
}

// gaveWay counts a round that ended before all rules were evaluated.
func (m *Metrics) gaveWay(cause evaluation.Cause) { m.rounds.WithLabelValues(string(cause)).Inc() }

// holdExpired counts a hold that has ended.
func (m *Metrics) holdExpired(action appsv1alpha1.HoldAction) {
	m.holds.WithLabelValues(string(action)).Inc()
}

// waived counts a request that was granted although rules withhold it.
func (m *Metrics) waived(by rule.Exception) { m.exceptions.WithLabelValues(string(by)).Inc() }

// parked shows the number of namespaces that wait for a place in the slow lane.
func (m *Metrics) parked(namespaces int) { m.waiting.Set(float64(namespaces)) }

// counted adds the counts of one round.
func (m *Metrics) counted(rule rule.RuleID, enforcement appsv1alpha1.Enforcement, evaluated, withheld, would int) {
	if evaluated == 0 && withheld == 0 && would == 0 {
		return
	}
	labels, _ := m.labels(rule)
	for outcome, count := range map[string]int{"evaluated": evaluated, "withheld": withheld, "would_withhold": would} {
		if count > 0 {
			m.requests.WithLabelValues(append(labels, string(enforcement), outcome)...).Add(float64(count))
		}
	}
}

// late counts evaluations that missed their deadline.
func (m *Metrics) late(rule rule.RuleID, times int) {
	if times > 0 {
		labels, _ := m.labels(rule)
		m.timeouts.WithLabelValues(labels...).Add(float64(times))
	}
}

// quarantine shows whether a rule is under quarantine.
func (m *Metrics) quarantine(rule rule.RuleID, is bool) {
	if !is {
		m.quarantined.DeleteLabelValues(rule.Ruleset.Namespace, rule.Ruleset.Name, rule.Rule)
		return
	}
	if labels, own := m.labels(rule); own {
		m.quarantined.WithLabelValues(labels...).Set(1)
	}
}

// running shows the calls of a webhook rule in flight.
func (m *Metrics) running(rule rule.RuleID, tasks int, oldest time.Time) {
	labels, own := m.labels(rule)
	if !own {
		return
	}
	m.tasks.WithLabelValues(labels...).Set(float64(tasks))
	began := 0.0
	if !oldest.IsZero() {
		began = float64(oldest.Unix())
	}
	m.oldestTask.WithLabelValues(labels...).Set(began)
}

// forget drops the series of a deleted PodTransitionRule.
func (m *Metrics) forget(object types.NamespacedName) {
	m.mu.Lock()
	for name := range m.measured[object] {
		m.names.Release(object.Namespace, name)
	}
	delete(m.measured, object)
	m.mu.Unlock()
	labels := prometheus.Labels{"namespace": object.Namespace, "podtransitionrule": object.Name}
	m.requests.DeletePartialMatch(labels)
	m.quarantined.DeletePartialMatch(labels)
	m.timeouts.DeletePartialMatch(labels)
	m.tasks.DeletePartialMatch(labels)
	m.oldestTask.DeletePartialMatch(labels)
}

// count adds the findings of a round to the counters of the rules and to their metrics, and records the
// quarantines that began in it.
func (r *Reconciler) count(snapshot snapshot, o evaluation.Outcome) {
	for _, counted := range r.evaluator.Count(snapshot.Snapshot, o, r.clock.Now()) {
		r.metrics.counted(counted.Rule, counted.Enforcement, counted.Evaluated, counted.Withheld, counted.Would)
	}
	for id, eval := range o.Rules {
		r.metrics.quarantine(id, eval.Quarantine() != nil)
		r.metrics.late(id, eval.Late+o.Allocation.Late[id])
		if eval.Calls != nil {
			tasks, oldest := eval.Calls.Tasks.Running()
			r.metrics.running(id, tasks, oldest)
		}
		if eval.IsQuarantined {
			r.recordQuarantine(eval)
		}
	}
	for _, eval := range o.Allocation.Quarantined {
		r.recordQuarantine(eval)
	}
}
