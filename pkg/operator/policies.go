package operator

import (
	"context"
	"fmt"
	"runtime"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/controllers/podtransitionpolicy"
	"github.com/podops-dev/podops/pkg/policy/engine"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// registerPolicies sets up the controller of PodTransitionPolicies, and returns what the
// webhooks inspect modules with.
func registerPolicies(mgr manager.Manager, policies *engine.Engine, workers int, clk clock.Clock) (*inspection.Checker, error) {
	// The index is asked for before the cache starts, hence no context to end it.
	status := podtransitionpolicy.New(mgr.GetClient(), policies, clk)
	if err := status.SetupWithManager(context.Background(), mgr, workers); err != nil {
		return nil, fmt.Errorf("setting up policies: %w", err)
	}
	// One core is left to the requests that inspect nothing.
	atOnce := max(1, runtime.GOMAXPROCS(0)-1)
	return inspection.New(policies, inspection.Timeout, atOnce), nil
}
