package operator

import (
	"errors"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/controllers/deferreddelete"
	"github.com/podops-dev/podops/pkg/controllers/podlifecycle"
	"github.com/podops-dev/podops/pkg/controllers/podtransitionrule"
	"github.com/podops-dev/podops/pkg/controllers/replicasetscale"
	"github.com/podops-dev/podops/pkg/operator/certificates"
	"github.com/podops-dev/podops/pkg/operator/webhookserver"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/runtime/buildinfo"
	"github.com/podops-dev/podops/pkg/runtime/steadyclock"
	"github.com/podops-dev/podops/pkg/state/eventqueue"
	"github.com/podops-dev/podops/pkg/state/ownerscale"
	"github.com/podops-dev/podops/pkg/telemetry/budgetuse"
	"github.com/podops-dev/podops/pkg/telemetry/decisionlog"
	"github.com/podops-dev/podops/pkg/telemetry/export"
	"github.com/podops-dev/podops/pkg/telemetry/podphases"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	podwebhook "github.com/podops-dev/podops/pkg/webhooks/pod"
)

// Metrics are all metrics of a manager, besides the metrics of its libraries.
type Metrics struct {
	// clock counts the jumps of the machine's clock.
	clock *steadyclock.Clock

	budgets      *budgetuse.Metrics
	certificates *certificates.Metrics
	decisions    *decisionlog.Metrics
	deletes      *deferreddelete.Metrics
	events       *eventqueue.Metrics
	owners       *ownerscale.Metrics
	phases       *podphases.Tracker
	problems     *prometheus.CounterVec
	reviews      *prometheus.CounterVec
	rules        *podtransitionrule.Metrics
	scales       *replicasetscale.Metrics
	server       *webhookserver.Metrics
	traces       *export.Metrics
	traffic      *podlifecycle.Metrics
	calls        *webhookclient.Metrics
}

// NewMetrics registers the metrics of a manager. It fails when they are registered already.
func NewMetrics(registry prometheus.Registerer, log logr.Logger) (*Metrics, error) {
	clk, err := newClock(registry, log)
	if err != nil {
		return nil, err
	}
	r := &registration{registry: registry}
	m := &Metrics{
		clock: clk,
		budgets: registered(r, func(registry prometheus.Registerer) (*budgetuse.Metrics, error) {
			return budgetuse.NewMetrics(registry, clk)
		}),
		certificates: registered(r, certificates.NewMetrics),
		decisions:    registered(r, decisionlog.NewMetrics),
		deletes:      registered(r, deferreddelete.NewMetrics),
		events:       registered(r, eventqueue.NewMetrics),
		owners:       registered(r, ownerscale.NewMetrics),
		phases: registered(r, func(registry prometheus.Registerer) (*podphases.Tracker, error) {
			return podphases.NewTracker(registry, clk)
		}),
		problems: registered(r, podlifecycle.NewProblems),
		reviews:  registered(r, podwebhook.NewReviews),
		rules:    registered(r, podtransitionrule.NewMetrics),
		scales:   registered(r, replicasetscale.NewMetrics),
		server:   registered(r, webhookserver.NewMetrics),
		traces:   registered(r, export.NewMetrics),
		traffic: registered(r, func(registry prometheus.Registerer) (*podlifecycle.Metrics, error) {
			return podlifecycle.NewMetrics(registry, clk)
		}),
		calls: registered(r, webhookclient.NewMetrics),
	}
	registered(r, resourceconsist.NewEmployeeErrors) // of adapters that run in the manager
	r.errs = append(r.errs, buildinfo.Register(registry, buildinfo.Read()))
	return m, errors.Join(r.errs...)
}

// registration collects the errors of constructors that register metrics.
type registration struct {
	registry prometheus.Registerer
	errs     []error
}

func registered[T any](r *registration, construct func(prometheus.Registerer) (T, error)) T {
	made, err := construct(r.registry)
	r.errs = append(r.errs, err)
	return made
}
