package podlifecycle

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// NewProblems registers the counter of problems on pods by reason: those of the events
// of this package.
func NewProblems(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	problems := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_pod_problems_total",
		Help: "Pods with a problem other than a rule: KubeletNotSyncing, InvalidLifecycle, GateMissing, BadAvailableConditions, BadAnnotation, " +
			"TrafficStillOn or TrafficNotOn. A pod counts once until the problem is resolved.",
	}, []string{"reason"})
	if err := registry.Register(problems); err != nil {
		return nil, fmt.Errorf("registering the metric of problems on pods: %w", err)
	}
	return problems, nil
}
