package podtransitionrule

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// Metrics of rules. Their labels name the namespace, the PodTransitionRule and the rule,
// and go with the PodTransitionRule.
type Metrics struct {
	requests    *prometheus.CounterVec
	quarantined *prometheus.GaugeVec
	timeouts    *prometheus.CounterVec
	tasks       *prometheus.GaugeVec
	oldestTask  *prometheus.GaugeVec
}

// NewMetrics registers the metrics of rules.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	rule := []string{"namespace", "podtransitionrule", "rule"}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_requests_total",
			Help: "Requests that a rule was asked about (asked), held back at least once (withheld), or would have held back were it enforced (would_withhold).",
		}, append(rule, "enforcement", "outcome")),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_rule_quarantined",
			Help: "1 while a rule is not asked any more because its module missed its deadline again and again.",
		}, rule),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_timeouts_total",
			Help: "Evaluations of a rule that missed their deadline.",
		}, rule),
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_webhook_tasks", Help: "Calls of a webhook rule that the service has not ended, polled ones included.",
		}, rule),
		oldestTask: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_webhook_oldest_task_start_seconds", Help: "When the oldest of podops_webhook_tasks began, in seconds since 1970; 0 when there is none.",
		}, rule),
	}
	for _, collector := range []prometheus.Collector{m.requests, m.quarantined, m.timeouts, m.tasks, m.oldestTask} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// counted adds what was counted in one round.
func (m *Metrics) counted(rule policy.RuleID, enforcement appsv1alpha1.Enforcement, asked, withheld, would int) {
	for outcome, count := range map[string]int{"asked": asked, "withheld": withheld, "would_withhold": would} {
		if count > 0 {
			m.requests.WithLabelValues(rule.Object.Namespace, rule.Object.Name, rule.Rule, string(enforcement), outcome).Add(float64(count))
		}
	}
}

// late counts evaluations that missed their deadline.
func (m *Metrics) late(rule policy.RuleID, times int) {
	if times > 0 {
		m.timeouts.WithLabelValues(rule.Object.Namespace, rule.Object.Name, rule.Rule).Add(float64(times))
	}
}

// quarantine shows whether a rule is under quarantine.
func (m *Metrics) quarantine(rule policy.RuleID, is bool) {
	labels := []string{rule.Object.Namespace, rule.Object.Name, rule.Rule}
	if !is {
		m.quarantined.DeleteLabelValues(labels...)
		return
	}
	m.quarantined.WithLabelValues(labels...).Set(1)
}

// running shows the calls that a webhook rule has under way.
func (m *Metrics) running(rule policy.RuleID, tasks int, oldest time.Time) {
	labels := []string{rule.Object.Namespace, rule.Object.Name, rule.Rule}
	m.tasks.WithLabelValues(labels...).Set(float64(tasks))
	began := 0.0
	if !oldest.IsZero() {
		began = float64(oldest.Unix())
	}
	m.oldestTask.WithLabelValues(labels...).Set(began)
}

// forget drops the series of a PodTransitionRule that is gone.
func (m *Metrics) forget(object types.NamespacedName) {
	labels := prometheus.Labels{"namespace": object.Namespace, "podtransitionrule": object.Name}
	m.requests.DeletePartialMatch(labels)
	m.quarantined.DeletePartialMatch(labels)
	m.timeouts.DeletePartialMatch(labels)
	m.tasks.DeletePartialMatch(labels)
	m.oldestTask.DeletePartialMatch(labels)
}
