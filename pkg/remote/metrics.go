package remote

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/policy"
)

// maxHostsPerRule bounds the hosts that a rule has series for: two are in use, the others
// are from before its last edits.
const maxHostsPerRule = 4

// Metrics of calls. The series of a rule go when it is forgotten, and those of a host with
// the last rule that called it. Metrics are safe for concurrent use.
type Metrics struct {
	calls    *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	breakers *prometheus.GaugeVec
	queued   prometheus.Gauge

	// underWay guards running. It is a lock of its own, under which no series is touched:
	// gathering needs it while it holds the locks of the series.
	underWay sync.Mutex

	// running are the calls under way, by key, and since when they are.
	running map[string]time.Time

	// mu guards what follows.
	mu sync.Mutex

	// hosts that each rule has called, the oldest first, and by how many rules each is.
	hosts map[policy.RuleID][]string
	rules map[string]int
}

// NewMetrics registers the metrics of calls.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_webhook_calls_total",
			Help: "Calls of webhook rules, by kind (post, poll) and outcome: Answered, or the class of the failure.",
		}, []string{"namespace", "podtransitionrule", "rule", "host", "kind", "outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "podops_webhook_call_duration_seconds",
			Help:    "How long calls of webhook rules took, without their waiting for a turn.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, []string{"host"}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_webhook_breaker_open",
			Help: "1 while a host is left alone, or tried with single calls, because calls to it failed again and again.",
		}, []string{"host"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_webhook_calls_queued",
			Help: "Calls of webhook rules that wait for their turn.",
		}),
		running: map[string]time.Time{}, hosts: map[policy.RuleID][]string{}, rules: map[string]int{},
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "podops_webhook_calls_running",
		Help: "Calls of webhook rules that are under way.",
	}, m.countRunning)
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "podops_webhook_oldest_running_call_seconds",
		Help: "Age of the oldest call of a webhook rule that is under way; 0 when none is.",
	}, m.ageOfOldest)
	for _, collector := range []prometheus.Collector{m.calls, m.latency, m.breakers, m.queued, running, oldest} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering metrics of webhook calls: %w", err)
		}
	}
	return m, nil
}

// waiting shows how many calls wait.
func (m *Metrics) waiting(calls int) { m.queued.Set(float64(calls)) }

func (m *Metrics) began(key string, now time.Time) {
	m.underWay.Lock()
	defer m.underWay.Unlock()
	m.running[key] = now
}

func (m *Metrics) ended(key string) {
	m.underWay.Lock()
	defer m.underWay.Unlock()
	delete(m.running, key)
}

func (m *Metrics) countRunning() float64 {
	m.underWay.Lock()
	defer m.underWay.Unlock()
	return float64(len(m.running))
}

func (m *Metrics) ageOfOldest() float64 {
	m.underWay.Lock()
	defer m.underWay.Unlock()
	oldest := time.Duration(0)
	for _, begin := range m.running {
		oldest = max(oldest, time.Since(begin))
	}
	return oldest.Seconds()
}

// counted adds a result, and shows whether the breaker of the host is open. Failures without
// a call have no latency.
func (m *Metrics) counted(result Result, host string, open bool) {
	outcome := "Answered"
	if result.Failure != nil {
		outcome = string(result.Failure.Class)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteHost(result.Call.Rule, host)
	m.calls.With(ruleLabels(result.Call.Rule, prometheus.Labels{"host": host, "kind": result.Call.kind(), "outcome": outcome})).Inc()
	if result.Took > 0 {
		m.latency.WithLabelValues(host).Observe(result.Took.Seconds())
	}
	if open {
		m.breakers.WithLabelValues(host).Set(1)
	} else {
		m.breakers.DeleteLabelValues(host)
	}
}

// forget drops the series of a rule; an empty name stands for all rules of the object.
func (m *Metrics) forget(rule policy.RuleID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for known, hosts := range m.hosts {
		if known.Object != rule.Object || rule.Rule != "" && known.Rule != rule.Rule {
			continue
		}
		for _, host := range hosts {
			m.release(known, host)
		}
		delete(m.hosts, known)
	}
}

// noteHost remembers that a rule has called a host.
func (m *Metrics) noteHost(rule policy.RuleID, host string) {
	hosts := m.hosts[rule]
	if slices.Contains(hosts, host) {
		return
	}
	if len(hosts) == maxHostsPerRule {
		m.release(rule, hosts[0])
		hosts = hosts[1:]
	}
	m.hosts[rule] = append(slices.Clone(hosts), host)
	m.rules[host]++
}

// release drops the series of a rule with a host, and those of the host with its last rule.
func (m *Metrics) release(rule policy.RuleID, host string) {
	m.calls.DeletePartialMatch(ruleLabels(rule, prometheus.Labels{"host": host}))
	if m.rules[host]--; m.rules[host] == 0 {
		delete(m.rules, host)
		m.latency.DeleteLabelValues(host)
		m.breakers.DeleteLabelValues(host)
	}
}

// ruleLabels adds those of a rule to others.
func ruleLabels(rule policy.RuleID, others prometheus.Labels) prometheus.Labels {
	others["namespace"], others["podtransitionrule"], others["rule"] = rule.Object.Namespace, rule.Object.Name, rule.Rule
	return others
}
