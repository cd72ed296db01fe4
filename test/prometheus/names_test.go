package prometheus

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// libraryMetrics returns the metrics of libraries and of API servers that alerts and the dashboard use, with
// their labels. The live test finds those of libraries in a manager.
func libraryMetrics() map[string][]string {
	return map[string][]string{
		"controller_runtime_reconcile_total":          {"controller", "result"},
		"controller_runtime_reconcile_errors_total":   {"controller"},
		"controller_runtime_webhook_requests_total":   {"webhook", "code"},
		"controller_runtime_webhook_latency_seconds":  {"webhook"},
		"workqueue_depth":                             {"controller", "name", "priority"},
		"rest_client_requests_total":                  {"code", "host", "method"},
		"leader_election_master_status":               {"name"},
		"process_cpu_seconds_total":                   {},
		"process_resident_memory_bytes":               {},
		"go_gc_gomemlimit_bytes":                      {},
		"go_gc_heap_live_bytes":                       {},
		"apiserver_admission_webhook_fail_open_count": {"name", "type"},
		"apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
	}
}

// targetLabels are the labels that Prometheus adds to each series.
var targetLabels = []string{"job", "instance"}

func TestAlertsAndDashboardNameMetricsThatExist(t *testing.T) {
	known := libraryMetrics()
	for name, labels := range documented(t) {
		known[name] = labels
	}
	expressions := map[string]string{}
	for _, alert := range alerts(t) {
		expressions["alert "+alert.Name+" "+alert.Labels["severity"]] = alert.Expr
	}
	dashboard, err := ReadDashboard(board)
	if err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions["panel "+panel.Title+": "+target.LegendFormat] = target.Expr
		}
	}
	for where, expression := range expressions {
		checkNames(t, where, expression, known)
	}
}

func checkNames(t *testing.T, where, expression string, known map[string][]string) {
	t.Helper()
	uses := UsesOf(expression)
	if len(uses.Metrics) == 0 && !strings.Contains(expression, "ALERTS{") {
		t.Errorf("%s names no metric: %s", where, expression)
	}
	all := slices.Clone(targetLabels)
	for name, matched := range uses.Metrics {
		labels, ok := known[name]
		if bucket, found := strings.CutSuffix(name, "_bucket"); found {
			labels, ok = known[bucket]
			labels = append(slices.Clone(labels), "le")
		}
		if !ok {
			t.Errorf("%s: docs/metrics.md has no metric %s", where, name)
		}
		for _, label := range matched {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: %s has labels %v and no %s", where, name, labels, label)
			}
		}
		all = append(all, labels...)
	}
	for _, label := range uses.Labels {
		if len(uses.Metrics) > 0 && !slices.Contains(all, label) {
			t.Errorf("%s: no metric of %s has the label %s", where, expression, label)
		}
	}
}

// documented returns the metrics in the tables of docs/metrics.md, with their labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	name, word := regexp.MustCompile("^`(podops_[a-z0-9_]+)`"), regexp.MustCompile(`[a-z_]+`)
	metrics := map[string][]string{}
	column := -1
	for line := range strings.Lines(read(t, root+"/docs/metrics.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if at := slices.Index(cells, "Labels"); at > 0 {
			column = at
			continue
		}
		found := name.FindStringSubmatch(cells[0])
		if found == nil || column < 0 || column >= len(cells) {
			continue
		}
		metrics[found[1]] = word.FindAllString(cells[column], -1)
	}
	if len(metrics) < 20 {
		t.Fatalf("docs/metrics.md has %d metrics with labels", len(metrics))
	}
	return metrics
}

func TestUsesOfAnExpression(t *testing.T) {
	for expression, want := range map[string]Uses{
		`sum by (reason) (increase(podops_events_dropped_total{reason=~"full|refused_by{x}"}[5m])) > 0`: {
			Metrics: map[string][]string{"podops_events_dropped_total": {"reason"}}, Labels: []string{"reason"},
		},
		`go_gc_heap_live_bytes / go_gc_gomemlimit_bytes > 0.75 and on (job, instance) podops_build_info`: {
			Metrics: map[string][]string{"go_gc_heap_live_bytes": nil, "go_gc_gomemlimit_bytes": nil, "podops_build_info": nil},
			Labels:  []string{"job", "instance"},
		},
		`up{job="podops_build_info"} unless on () vector(1)`:      {Metrics: map[string][]string{}},
		`podops_pods{namespace=~"$namespace",phase!="Available"}`: {Metrics: map[string][]string{"podops_pods": {"namespace", "phase"}}},
	} {
		if diff := cmp.Diff(want, UsesOf(expression)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

func TestVariablesAreReplaced(t *testing.T) {
	got := Interpolate(`sum(rate(x{namespace=~"$namespace"}[$__rate_interval])) + ${namespace}`, map[string]string{"namespace": "shop|web", "__rate_interval": "15s"})
	if want := `sum(rate(x{namespace=~"shop|web"}[15s])) + shop|web`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
