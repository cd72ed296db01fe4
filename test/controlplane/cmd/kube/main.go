// Command kube is the local control plane in one file: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and kubectl, each under its own name and called
// through a symlink. They share most of their code, so one file is linked in the time of one
// of them.
//
// The base name of argv[0] selects the component or, when it is none of them, the first
// argument does. Only the selected component registers flags, metrics and feature gates,
// so the components do not interfere at run time.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "time/tzdata" // time zones of CronJobs

	_ "k8s.io/client-go/plugin/pkg/client/auth"           // credential plugins of kubectl
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info metric
)

// component is one program of the control plane.
type component struct {
	name string
	// run is the program's main function with os.Args already in place. It
	// returns the exit code, or exits itself.
	run func() int
}

func components() []component {
	return []component{
		{"etcd", etcd},
		{"kube-apiserver", apiServer},
		{"kube-controller-manager", controllerManager},
		{"kube-scheduler", scheduler},
		{"kubectl", kubectl},
	}
}

func main() {
	os.Exit(run())
}

func run() int {
	all := components()
	byName := func(name string) int {
		return slices.IndexFunc(all, func(c component) bool { return c.name == name })
	}
	if i := byName(filepath.Base(os.Args[0])); i >= 0 {
		return all[i].run()
	}
	if len(os.Args) > 1 {
		if i := byName(os.Args[1]); i >= 0 {
			// The programs read os.Args themselves (flags, usage texts, kubectl
			// plugins), so the first argument becomes their name.
			os.Args = os.Args[1:]
			return all[i].run()
		}
	}
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.name)
	}
	fmt.Fprintf(os.Stderr, "usage: %s {%s} [arguments]\n", filepath.Base(os.Args[0]), strings.Join(names, "|"))
	return 2
}
