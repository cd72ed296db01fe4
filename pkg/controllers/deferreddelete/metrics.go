package deferreddelete

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// Metrics counts how deletes and removals end, and pods that go past their rules.
type Metrics struct {
	cancelled *prometheus.CounterVec
	unguarded *metricseries.NamespaceCounter
	updated   *metricseries.NamespaceCounter
}

// NewMetrics registers the metrics. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		cancelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podops_deletes_cancelled_total",
			Help: "Held deletes and evictions that PodOps has cancelled: the owner needs the pod again (Unwanted), the request was not repeated (NotRepeated), " +
				"the label to-delete was removed (Withdrawn), the owner did not delete " +
				"the pod although it might (Forgone), another webhook, a policy or a PodDisruptionBudget denied its removal (Kept), " +
				"another pod of its ReplicaSet goes instead (Exchanged), the client went away while its request waited (Abandoned), or the pod has ended (Ended). " +
				"Holds that maxHold ends are counted by podops_holds_expired_total.",
		}, []string{"reason"}),
		unguarded: metricseries.NewNamespaceCounter(prometheus.CounterOpts{
			Name: "podops_deletes_unguarded_total",
			Help: "Pods that were removed although an enforced rule had not permitted it: TaintManager, PodGC, Preemption, Kubelet, OwnerDeleted, Forced, " +
				"or Unanswered (no manager answered). After a restart, pods that are terminating then may count twice.",
		}, "reason", unguardedReasons()),
		updated: metricseries.NewPlainNamespaceCounter(prometheus.CounterOpts{
			Name: "podops_updates_unguarded_total",
			Help: "Changes of the spec of pods in place (image, resources, activeDeadlineSeconds and so on) without an operation, although an " +
				"enforced rule applies to updates of them. Changes while no replica leads are not counted.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.cancelled, m.unguarded, m.updated} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of deletes: %w", err)
		}
	}
	for _, lapse := range deferreddelete.Lapses() {
		m.cancelled.WithLabelValues(string(lapse))
	}
	return m, nil
}

func unguardedReasons() []string {
	var reasons []string
	for _, reason := range deferreddelete.UnguardedReasons() {
		reasons = append(reasons, string(reason))
	}
	return reasons
}

// lapsed counts a pending delete that is cancelled.
func (m *Metrics) lapsed(lapse deferreddelete.Lapse) {
	m.cancelled.WithLabelValues(string(lapse)).Inc()
}
