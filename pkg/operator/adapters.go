package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	trafficadaptercontroller "github.com/podops-dev/podops/pkg/controllers/trafficadapter"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// adapters returns the adapters that --enable-adapters can name, with their setup functions. They
// need rights that the manager does not have otherwise: config/components/adapters.
func adapters() map[string]func(manager.Manager, Options, ...resourceconsist.Option) error {
	return map[string]func(manager.Manager, Options, ...resourceconsist.Option) error{
		"demo": func(mgr manager.Manager, _ Options, more ...resourceconsist.Option) error {
			return demo.AddToMgr(mgr, &demo.DemoResourceProviderClient{}, more...)
		},
		"haproxy": func(mgr manager.Manager, options Options, more ...resourceconsist.Option) error {
			allowed, err := haproxy.ParseAllowed(options.HAProxyAllow)
			if err != nil {
				return fmt.Errorf("--haproxy-allow: %w", err)
			}
			return haproxy.AddToMgr(mgr, haproxy.Options{Allowed: allowed}, more...)
		},
	}
}

func (o *Options) addAdapterFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.EnableAdapters, "enable-adapters", "", "adapters for load balancers to run, separated by commas: demo, haproxy; empty: no adapters")
	flags.StringVar(&o.HAProxyAllow, "haproxy-allow", "", "Runtime APIs of HAProxy that Services may name, separated by commas: tcp:<host>:<port>, unix:<path>, unix:<folder>/ or a network such as 10.0.4.0/24; needed by the adapter haproxy")
}

// enabledAdapters returns the names in --enable-adapters, each once and sorted.
func (o *Options) enabledAdapters() ([]string, error) {
	known := slices.Sorted(maps.Keys(adapters()))
	var names []string
	for _, name := range list(o.EnableAdapters) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--enable-adapters names %q, known are %s", name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// validateAdapters returns an error that names an invalid flag.
func (o *Options) validateAdapters() error {
	names, err := o.enabledAdapters()
	if err != nil {
		return err
	}
	if _, err := haproxy.ParseAllowed(o.HAProxyAllow); err != nil {
		return fmt.Errorf("--haproxy-allow: %w", err)
	}
	if slices.Contains(names, "haproxy") && o.HAProxyAllow == "" {
		return errors.New("--enable-adapters names haproxy, and --haproxy-allow is empty: it lists the Runtime APIs that Services may name")
	}
	return nil
}

// registerTraffic adds the enabled adapters and the controller of TrafficAdapters. It returns the
// expected finalizers of new pods, of both.
func registerTraffic(mgr manager.Manager, options Options, clk clock.PassiveClock) (trafficadapter.Expected, error) {
	inside := &resourceconsist.Admission{}
	if err := registerAdapters(mgr, options, resourceconsist.WithAdmission(inside)); err != nil {
		return nil, err
	}
	// The index is registered before the cache starts, so no context can end it.
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Service{}, trafficadapter.ServiceField, trafficadapter.IndexServices)
	if err != nil {
		return nil, fmt.Errorf("indexing Services by the pods that they select: %w", err)
	}
	status := trafficadaptercontroller.New(mgr.GetClient(), mgr.GetAPIReader(), clk)
	if err := status.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up traffic adapters: %w", err)
	}
	return trafficadapter.Join(inside.ExpectedFinalizers, trafficadapter.NewAdmission(mgr.GetClient()).ExpectedFinalizers), nil
}

// registerAdapters adds the enabled adapters; by default no adapter is enabled.
func registerAdapters(mgr manager.Manager, options Options, more ...resourceconsist.Option) error {
	names, err := options.enabledAdapters()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := adapters()[name](mgr, options, more...); err != nil {
			return fmt.Errorf("setting up adapter %s: %w", name, err)
		}
	}
	return nil
}
