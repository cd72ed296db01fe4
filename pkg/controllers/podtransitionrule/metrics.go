package podtransitionrule

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// Bounds of the PodTransitionRules and rules that have series of their own. Each has at most 15 series, so all
// have at most 30,000.
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
	// measured are the names of each PodTransitionRule that may have series: its own, and those of its rules.
	measured map[types.NamespacedName]map[string]bool

	// shown are the numbers that the gauges of each PodTransitionRule show.
	shown map[types.NamespacedName]*shown

	requests    *prometheus.CounterVec
	quarantined *prometheus.GaugeVec
	timeouts    *prometheus.CounterVec
	tasks       *prometheus.GaugeVec
	oldestTask  *prometheus.GaugeVec
	rounds      *prometheus.CounterVec
	waiting     prometheus.Gauge
	holds       *prometheus.CounterVec
	exceptions  *metricseries.NamespaceCounter
	pods        *prometheus.GaugeVec
	unavailable *prometheus.GaugeVec
	limit       *prometheus.GaugeVec
	permits     *prometheus.CounterVec
}

// shown are the numbers of a PodTransitionRule in gauges.
type shown struct {
	pods podCounts

	// budgets are the budgets of its availability rules, by their name.
	budgets map[string]evaluation.Budget
}

// podCounts are the numbers of a PodTransitionRule's pods.
type podCounts struct {
	rule.Counts
	waiting, offTraffic int
}

// states returns the numbers by the value of the label state.
func (c podCounts) states() map[string]int {
	return map[string]int{
		"desired": c.Desired, "selected": c.Selected, "available": c.Available, "reserved": c.Reserved,
		"waiting": c.waiting, "off_traffic": c.offTraffic,
	}
}

// NewMetrics registers the metrics of rules.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	rule := []string{"namespace", "podtransitionrule", "rule"}
	m := &Metrics{
		names:    metricseries.NewNames(metricseries.Limits{PerNamespace: maxMeasuredPerNamespace, InAll: maxMeasured}),
		measured: map[types.NamespacedName]map[string]bool{}, shown: map[types.NamespacedName]*shown{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_requests_total",
			Help: "Requests that a rule applied to (evaluated), withheld at least once (withheld), or would have withheld were it enforced (would_withhold).",
		}, append(rule, "enforcement", "outcome")),
		quarantined: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "podops_rule_quarantined",
			Help: "1 while a rule is not evaluated any more because its module used up its CPU time, memory or stack again and again.",
		}, rule),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_rule_timeouts_total",
			Help: "Evaluations of a rule that used up their CPU time without a result.",
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
	m.exceptions = metricseries.NewNamespaceCounter(prometheus.CounterOpts{
		Name: "podops_rules_waived_total",
		Help: "Requests that were granted although rules withhold them, because of a break-glass annotation (BreakGlass), " +
			"of maxHold (MaxHold) or of exemptRevisions (Revision).",
	}, "exception", exceptions())
	m.makePermits()
	collectors := []prometheus.Collector{
		m.requests, m.quarantined, m.timeouts, m.tasks, m.oldestTask, m.rounds, m.waiting, m.holds, m.exceptions,
		m.pods, m.unavailable, m.limit, m.permits,
	}
	for _, collector := range collectors {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of rules: %w", err)
		}
	}
	m.begin()
	return m, nil
}

// makePermits makes the metrics of permits and budgets.
func (m *Metrics) makePermits() {
	rule := []string{"namespace", "podtransitionrule", "rule"}
	m.pods = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_podtransitionrule_pods",
		Help: "Pods of a PodTransitionRule, as its status counts them: desired (what percentages refer to), selected, available, waiting (for a rule), " +
			"off_traffic, and reserved (the permit is recorded, and not on the pod yet).",
	}, []string{"namespace", "podtransitionrule", "state"})
	m.unavailable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_rule_unavailable_pods",
		Help: "The budget of an enforced availability rule that is in use: its desired pods that are not available, or are reserved.",
	}, rule)
	m.limit = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "podops_rule_unavailable_pods_limit",
		Help: "The budget of an enforced availability rule: how many of its desired pods may be unavailable, by the lower of its bounds.",
	}, rule)
	m.permits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_permits_total",
		Help: "Permits that were written to pods, by stage (PreCheck, PostCheck).",
	}, []string{"stage"})
}

// begin creates the series whose labels have few values, since no query sees the first increase of a counter.
func (m *Metrics) begin() {
	for _, cause := range evaluation.Causes() {
		m.rounds.WithLabelValues(string(cause))
	}
	for _, action := range []appsv1alpha1.HoldAction{appsv1alpha1.HoldUndo, appsv1alpha1.HoldRelease} {
		m.holds.WithLabelValues(string(action))
	}
	for _, stage := range []appsv1alpha1.TransitionStage{appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck} {
		m.permits.WithLabelValues(string(stage))
	}
}

func exceptions() []string {
	var names []string
	for _, exception := range rule.Exceptions() {
		names = append(names, string(exception))
	}
	return names
}

// labels returns the label values of a rule, and whether they are its own.
func (m *Metrics) labels(rule rule.RuleID) (values []string, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.place(rule)
}

// place is labels for a caller that holds the lock. A PodTransitionRule has the place of a rule with an empty name.
func (m *Metrics) place(rule rule.RuleID) (values []string, own bool) {
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

// waived counts a request of a namespace that was granted although rules withhold it.
func (m *Metrics) waived(namespace string, by rule.Exception) {
	m.exceptions.Inc(namespace, string(by))
}

// follow begins the series of a namespace that exists, and ends those of a namespace that was deleted.
func (m *Metrics) follow(namespace string, exists bool) {
	if exists {
		m.exceptions.Begin(namespace)
	} else {
		m.exceptions.End(namespace)
	}
}

// permitted counts a permit that was written.
func (m *Metrics) permitted(stage appsv1alpha1.TransitionStage) {
	m.permits.WithLabelValues(string(stage)).Inc()
}

// show shows the pods of a PodTransitionRule, and the budgets of its rules. Only numbers that have changed cost
// anything. A rule that could not be evaluated keeps its last budget.
func (m *Metrics) show(object types.NamespacedName, pods podCounts, rules []*evaluation.Rule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.shown[object]
	if !known {
		last = &shown{budgets: map[string]evaluation.Budget{}}
		m.shown[object] = last
	}
	bounding := 0
	for _, eval := range rules {
		if !eval.BoundsAvailability() {
			continue
		}
		name := eval.ID().Rule
		before, had := last.budgets[name]
		budget, ok := eval.Budget()
		if ok && (!had || budget != before) {
			last.budgets[name], had = budget, true
			m.showBudget(eval.ID(), budget)
		}
		if had {
			bounding++
		}
	}
	if bounding < len(last.budgets) {
		m.dropBudgets(object, last, rules)
	}
	if known && last.pods == pods {
		return
	}
	last.pods = pods
	if _, own := m.place(rule.RuleID{Ruleset: object}); own {
		for state, count := range pods.states() {
			m.pods.WithLabelValues(object.Namespace, object.Name, state).Set(float64(count))
		}
	}
}

// dropBudgets deletes the series of the rules that do not bound availability any more.
func (m *Metrics) dropBudgets(object types.NamespacedName, last *shown, rules []*evaluation.Rule) {
	for name := range last.budgets {
		if slices.ContainsFunc(rules, func(eval *evaluation.Rule) bool { return eval.ID().Rule == name && eval.BoundsAvailability() }) {
			continue
		}
		delete(last.budgets, name)
		m.unavailable.DeleteLabelValues(object.Namespace, object.Name, name)
		m.limit.DeleteLabelValues(object.Namespace, object.Name, name)
	}
}

func (m *Metrics) showBudget(id rule.RuleID, budget evaluation.Budget) {
	if labels, own := m.place(id); own {
		m.unavailable.WithLabelValues(labels...).Set(float64(budget.Unavailable))
		m.limit.WithLabelValues(labels...).Set(float64(budget.Limit))
	}
}

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
	delete(m.shown, object)
	m.mu.Unlock()
	labels := prometheus.Labels{"namespace": object.Namespace, "podtransitionrule": object.Name}
	m.requests.DeletePartialMatch(labels)
	m.quarantined.DeletePartialMatch(labels)
	m.timeouts.DeletePartialMatch(labels)
	m.tasks.DeletePartialMatch(labels)
	m.oldestTask.DeletePartialMatch(labels)
	m.pods.DeletePartialMatch(labels)
	m.unavailable.DeletePartialMatch(labels)
	m.limit.DeletePartialMatch(labels)
}

// count adds the findings of a round to the counters of the rules and to their metrics, and records the
// quarantines that began in it.
func (r *Reconciler) count(turn *turn, snapshot snapshot, o evaluation.Outcome) {
	r.metrics.follow(snapshot.Namespace, snapshot.NamespaceLabels != nil)
	for _, counted := range snapshot.state.evaluation.Count(turn.Turn, o, r.clock.Now()) {
		r.metrics.counted(counted.Rule, counted.Enforcement, counted.Evaluated, counted.Withheld, counted.Would)
	}
	for name, ruleset := range o.Rulesets {
		view := ruleset.View
		r.metrics.show(types.NamespacedName{Namespace: snapshot.Namespace, Name: name},
			podCounts{Counts: view.Counts, waiting: view.WaitingPods, offTraffic: view.OffTraffic}, ruleset.Rules)
	}
	for id, eval := range o.Rules {
		r.metrics.quarantine(id, eval.Quarantine() != nil)
		r.metrics.late(id, o.Late[id]+o.Allocation.Late[id])
		if eval.Calls != nil {
			tasks, oldest := eval.Calls.Tasks.Running()
			r.metrics.running(id, tasks, oldest)
		}
	}
	for _, eval := range slices.Concat(o.Quarantined, o.Allocation.Quarantined) {
		r.recordQuarantine(eval)
	}
}
