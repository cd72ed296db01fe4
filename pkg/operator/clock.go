package operator

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/runtime/steadyclock"
)

// newClock returns the clock of the controllers and webhooks, which does not jump. Jumps of the
// clock of the machine are logged and counted.
func newClock(registry prometheus.Registerer, log logr.Logger) (*steadyclock.Clock, error) {
	jumps := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "podops_clock_jumps_total",
		Help: "How often the clock of the machine was set by a second or more. Waits of this process do not depend on it. On every replica.",
	})
	if err := registry.Register(jumps); err != nil {
		return nil, fmt.Errorf("registering the metric of clock jumps: %w", err)
	}
	return steadyclock.New(func(by time.Duration) {
		jumps.Inc()
		log.Info("The clock of the machine was set; waits continue as before, and written times follow it slowly", "by", by.String())
	}), nil
}
