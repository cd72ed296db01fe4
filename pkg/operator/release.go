package operator

import (
	"context"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/adapters/demo"
	"github.com/podops-dev/podops/pkg/adapters/haproxy"
	"github.com/podops-dev/podops/pkg/release"
)

// Release removes PodOps from the pods of a cluster, see package release, and reports its
// progress on out. Namespace is that of the manager, and adapters are the
// TrafficAdapters whose programs are removed with it.
func Release(ctx context.Context, config *rest.Config, namespace string, adapters []string, allFinalizers bool, out io.Writer) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	step := ""
	report, err := release.Run(ctx, c, release.Options{
		Namespace:     namespace,
		Controllers:   []string{demo.ControllerName, haproxy.ControllerName},
		Adapters:      adapters,
		AllFinalizers: allFinalizers,
		Progress: func(r release.Report) {
			if r.Step != step {
				fmt.Fprintln(out, r.Step)
				step = r.Step
			}
			if r.Pods > 0 {
				fmt.Fprintf(out, "  %d pods seen, %d released\n", r.Pods, r.Released)
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "released %d pods and %d ReplicaSets, removed %d protection finalizers and %d clean finalizers of Services\n",
		report.Released, report.ReplicaSets, report.Finalizers, report.Services)
	if len(report.Adapters) > 0 && !allFinalizers {
		fmt.Fprintf(out, "the finalizers of %s stay: their programs remove them; --adapters removes them when these programs have stopped\n",
			strings.Join(report.Adapters, ", "))
	}
	return nil
}
