package webhookclient

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// maxHostsPerRule bounds the hosts that a rule has series for: two are in use, the others are from
// before its last edits.
const maxHostsPerRule = 4

// ruleLimits and hostLimits bound the rules and hosts with series of their own; all others share
// the label "other" of their namespace.
func ruleLimits() metricseries.Limits { return metricseries.Limits{PerNamespace: 32, InAll: 512} }
func hostLimits() metricseries.Limits { return metricseries.Limits{PerNamespace: 16, InAll: 512} }

// Metrics are the metrics of calls. The series of a rule are deleted when it is forgotten, and the
// series of a host with the last rule of the namespace that called it. Every series is of one
// namespace. Metrics are safe for concurrent use.
type Metrics struct {
	calls   *prometheus.CounterVec
	latency *prometheus.HistogramVec
	queued  prometheus.Gauge

	// open returns how many circuit breakers are not closed, by namespace and host.
	open atomic.Pointer[func() map[[2]string]int]

	// underWay guards running. It is a separate lock, under which no series is touched: gathering
	// acquires it while it holds the locks of the series.
	underWay sync.Mutex

	// running has the start times of the calls in flight, by key.
	running map[string]time.Time

	ruleNames *metricseries.Names
	hostNames *metricseries.Names

	// mu guards the fields below.
	mu sync.Mutex

	// rules has the labels of each rule that has made calls; uses counts the rules behind series.
	rules map[rule.RuleID]*ruleSeries
	uses  map[seriesKey]int
}

// ruleSeries has the labels of a rule's series.
type ruleSeries struct {
	object, rule string

	// hosts are the hosts that it has called, the oldest first.
	hosts []string
}

// seriesKey has the labels that series share; object and rule are empty for the latency of a host.
type seriesKey struct{ namespace, object, rule, host string }

// NewMetrics registers the metrics of calls.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_webhook_calls_total",
			Help: "Calls of webhook rules, by kind (post, poll) and outcome: Answered, or the class of the failure.",
		}, []string{"namespace", "podtransitionrule", "rule", "host", "kind", "outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "podops_webhook_call_duration_seconds",
			Help:    "Duration of calls of webhook rules, without their time in the queue.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}, []string{"namespace", "host"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "podops_webhook_calls_queued",
			Help: "Queued calls of webhook rules.",
		}),
		running:   map[string]time.Time{},
		ruleNames: metricseries.NewNames(ruleLimits()), hostNames: metricseries.NewNames(hostLimits()),
		rules: map[rule.RuleID]*ruleSeries{}, uses: map[seriesKey]int{},
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "podops_webhook_calls_running",
		Help: "Calls of webhook rules in flight.",
	}, m.countRunning)
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "podops_webhook_oldest_running_call_seconds",
		Help: "Age of the oldest call of a webhook rule in flight; 0 without a call.",
	}, m.ageOfOldest)
	for _, collector := range []prometheus.Collector{m.calls, m.latency, m.queued, running, oldest, openBreakers{m}} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering metrics of webhook calls: %w", err)
		}
	}
	return m, nil
}

// waiting sets the number of queued calls.
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

// watch makes open the source for the metric of circuit breakers.
func (m *Metrics) watch(open func() map[[2]string]int) { m.open.Store(&open) }

// counted adds a result. Failures without a call have no latency.
func (m *Metrics) counted(result Result) {
	outcome := "Answered"
	if result.Failure != nil {
		outcome = string(result.Failure.Class)
	}
	namespace := result.Call.Rule.Ruleset.Namespace
	m.mu.Lock()
	defer m.mu.Unlock()
	series := m.seriesFor(result.Call.Rule)
	host := m.hostLabel(series, namespace, result.Call.target().host)
	m.calls.WithLabelValues(namespace, series.object, series.rule, host, result.Call.kind(), outcome).Inc()
	if result.Took > 0 {
		m.latency.WithLabelValues(namespace, host).Observe(result.Took.Seconds())
	}
}

// seriesFor returns the labels of a rule, which are its own if a place is free.
func (m *Metrics) seriesFor(rule rule.RuleID) *ruleSeries {
	series, has := m.rules[rule]
	if !has {
		series = &ruleSeries{object: rule.Ruleset.Name, rule: rule.Rule}
		if m.ruleNames.Value(rule.Ruleset.Namespace, ruleName(rule)) == metricseries.Other {
			series.object, series.rule = metricseries.Other, metricseries.Other
		}
		m.rules[rule] = series
	}
	return series
}

// ruleName returns the name of a rule within its namespace.
func ruleName(rule rule.RuleID) string { return rule.Ruleset.Name + "/" + rule.Rule }

// hostLabel returns the label of a host, and records that a rule has called it.
func (m *Metrics) hostLabel(series *ruleSeries, namespace, host string) string {
	if slices.Contains(series.hosts, host) {
		return host
	}
	label := m.hostNames.Value(namespace, host)
	if slices.Contains(series.hosts, label) {
		return label
	}
	if len(series.hosts) == maxHostsPerRule {
		m.release(series, namespace, series.hosts[0])
		series.hosts = series.hosts[1:]
	}
	series.hosts = append(slices.Clone(series.hosts), label)
	for _, key := range series.keys(namespace, label) {
		m.uses[key]++
	}
	return label
}

// keys returns the keys of a rule's series with a host, and of the host's latency.
func (s *ruleSeries) keys(namespace, host string) []seriesKey {
	return []seriesKey{{namespace, s.object, s.rule, host}, {namespace: namespace, host: host}}
}

// forget deletes the series of a rule; an empty name means all rules of the object.
func (m *Metrics) forget(rule rule.RuleID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for known, series := range m.rules {
		if known.Ruleset != rule.Ruleset || rule.Rule != "" && known.Rule != rule.Rule {
			continue
		}
		for _, host := range series.hosts {
			m.release(series, known.Ruleset.Namespace, host)
		}
		m.ruleNames.Release(known.Ruleset.Namespace, ruleName(known))
		delete(m.rules, known)
	}
}

// release deletes the series of a rule with a host, and the series of the host unless other rules
// use it, too.
func (m *Metrics) release(series *ruleSeries, namespace, host string) {
	for _, key := range series.keys(namespace, host) {
		if m.uses[key]--; m.uses[key] > 0 {
			continue
		}
		delete(m.uses, key)
		if key.rule != "" {
			m.calls.DeletePartialMatch(prometheus.Labels{
				"namespace": key.namespace, "podtransitionrule": key.object, "rule": key.rule, "host": key.host,
			})
			continue
		}
		m.latency.DeleteLabelValues(key.namespace, key.host)
		m.hostNames.Release(key.namespace, key.host)
	}
}
