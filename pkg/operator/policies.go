package operator

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/controllers/podtransitionpolicy"
	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// registerPolicies registers the controller of PodTransitionPolicies, and returns the checker with
// which webhooks inspect modules.
func registerPolicies(mgr manager.Manager, modules *sandbox.Sandbox, workers int, clk clock.Clock) (*inspection.Checker, error) {
	// The index is registered before the cache starts, so no context can end it.
	status := podtransitionpolicy.New(mgr.GetClient(), modules, clk)
	if err := status.SetupWithManager(context.Background(), mgr, workers); err != nil {
		return nil, fmt.Errorf("setting up policies: %w", err)
	}
	return inspection.New(modules, inspection.Timeout, sandbox.Children, clk), nil
}
