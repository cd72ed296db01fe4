package alibabacloudslb

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// FeatureGate turns the adapter on. It is off by default.
const FeatureGate = "AlibabaCloudSlb"

// FeatureEnabled parses a list of feature gates, such as AlibabaCloudSlb=true. It fails on
// an unknown gate.
func FeatureEnabled(gates string) (bool, error) {
	enabled := false
	for _, gate := range splitList(gates) {
		name, value, _ := strings.Cut(gate, "=")
		on, err := strconv.ParseBool(value)
		if name != FeatureGate || err != nil {
			return false, fmt.Errorf("feature gate %q: use %s=true or %s=false", bounded(gate), FeatureGate, FeatureGate)
		}
		enabled = on
	}
	return enabled, nil
}

// AddToMgr registers the adapter with a manager, whose scheme has core/v1. Further options
// are passed to the framework. It does not call the load balancer before the manager
// starts.
func AddToMgr(mgr manager.Manager, config Config, more ...resourceconsist.Option) error {
	api, err := NewClient(config)
	if err != nil {
		return err
	}
	adapter, err := New(mgr.GetClient(), api, nil)
	if err != nil {
		return err
	}
	if err := resourceconsist.AddToMgr(mgr, adapter, more...); err != nil {
		return fmt.Errorf("adding the adapter for SLB: %w", err)
	}
	return nil
}
