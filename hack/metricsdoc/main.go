// Command metricsdoc writes docs/metrics.md from the metrics that a manager registers. Run it with `make docs`.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	libraries "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/podops-dev/podops/pkg/operator"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: metricsdoc FILE")
		return 2
	}
	text, err := page()
	if err == nil {
		err = os.WriteFile(args[0], []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "metricsdoc: %v\n", err)
		return 1
	}
	return 0
}

// page returns the content of docs/metrics.md.
func page() (string, error) {
	own := &recorder{}
	if _, err := operator.NewMetrics(own, logr.Discard()); err != nil {
		return "", fmt.Errorf("registering the metrics of the manager: %w", err)
	}
	all, ok := libraries.Registry.(prometheus.Collector)
	if !ok {
		return "", fmt.Errorf("the registry of controller-runtime, a %T, does not describe its metrics", libraries.Registry)
	}
	others, err := described(all)
	if err != nil {
		return "", err
	}
	return render(own.metrics, others, groups())
}

const introduction = `<!-- Written by make docs; edit the metrics where they are registered, or the groups in hack/metricsdoc. -->
# Metrics

Every replica serves ` + "`/metrics`" + ` over HTTPS; [serving.md](serving.md#metrics) lists the rights to read them, and
[observing.md](observing.md#metrics) the first to look at.

- The leader has the numbers below, and a follower none or zeros, unless the meaning states that every replica has its own. A replica
  leads while ` + "`leader_election_master_status`" + ` is 1.
- Gauges follow the objects in the cluster, so that a new leader has them at once. Counters and histograms begin at 0 with each process,
  and do not count what happens while no manager leads.
- Users cannot create series without bound. 500 namespaces with pods, 100 rules and PodTransitionRules of a namespace and 2000 of the
  cluster, as many PodDisruptionBudgets, and 8 controllers of a namespace and 500 of the cluster have series of their own. Of others,
  counters and gauges of pods by namespace are added up under the name ` + "`other`" + `, which also has the longest of their times; gauges of
  rules and PodDisruptionBudgets leave them out. The series of an object end with it.
`

// render returns the page. Every metric of the manager is in one group.
func render(own, others []metric, groups []group) (string, error) {
	var text strings.Builder
	text.WriteString(introduction)
	left := map[string]metric{}
	for _, m := range own {
		left[m.name] = m
	}
	var errs []error
	for _, group := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n", group.question)
		for _, name := range group.metrics {
			m, ok := left[name]
			if !ok {
				errs = append(errs, fmt.Errorf("group %q has %s, which is no metric or in two groups: edit hack/metricsdoc/groups.go", group.question, name))
				continue
			}
			delete(left, name)
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), escaped(m.help))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		errs = append(errs, fmt.Errorf("%s is in no group: add it in hack/metricsdoc/groups.go", name))
	}
	text.WriteString(ofLibraries(others))
	return text.String(), errors.Join(errs...)
}

// ofLibraries returns the section of the metrics of libraries.
func ofLibraries(others []metric) string {
	var text strings.Builder
	text.WriteString("\n## Libraries\n\nOf controller-runtime and client-go, on every replica, and `go_*` and `process_*` of the Go runtime and the process.\n\n" +
		"| Metric | Labels | Meaning |\n|---|---|---|\n")
	slices.SortFunc(others, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	for _, m := range others {
		if strings.HasPrefix(m.name, "go_") || strings.HasPrefix(m.name, "process_") || strings.HasPrefix(m.name, "podops_") {
			continue
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), escaped(m.help))
	}
	return text.String()
}

// escaped returns a text that stands in a cell of a table as it is.
func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(text)
}
