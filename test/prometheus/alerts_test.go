package prometheus

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	root     = "../.."
	rules    = root + "/config/components/alerts/rules.yaml"
	operator = root + "/config/components/alerts/prometheusrule.yaml"
	tests    = root + "/config/components/alerts/rules_test.yaml"
	pages    = root + "/docs/alerts"
	board    = root + "/config/components/dashboard/podops.json"
	site     = "https://github.com/podops-dev/podops/blob/main/docs/alerts/"
)

func TestEachAlertHasItsText(t *testing.T) {
	for _, alert := range alerts(t) {
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q, want critical or warning", alert.Name, severity)
		}
		if alert.Annotations["summary"] == "" || !strings.Contains(alert.Annotations["description"], "{{") && alert.Name != "PodOpsDown" && alert.Name != "PodOpsRuleQuarantined" {
			t.Errorf("%s: got %v, want a summary, and a description with the numbers", alert.Name, alert.Annotations)
		}
		if want := site + alert.Name + ".md"; alert.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", alert.Name, alert.Annotations["runbook_url"], want)
		}
	}
}

func TestEachAlertHasAPageAndEachPageAnAlert(t *testing.T) {
	var names []string
	for _, alert := range alerts(t) {
		if !slices.Contains(names, alert.Name) {
			names = append(names, alert.Name)
		}
	}
	index := read(t, pages+"/README.md")
	for _, name := range names {
		text := read(t, filepath.Join(pages, name+".md"))
		var headings []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "#") {
				headings = append(headings, strings.TrimSpace(line))
			}
		}
		if diff := cmp.Diff([]string{"# " + name, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation", "## Silence"}, headings); diff != "" {
			t.Errorf("headings of the page of %s (-want +got):\n%s", name, diff)
		}
		if !strings.Contains(index, "]("+name+".md)") {
			t.Errorf("docs/alerts/README.md has no link to %s", name)
		}
	}
	files, err := filepath.Glob(pages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); name != "README" && !slices.Contains(names, name) {
			t.Errorf("%s is the page of no alert", file)
		}
	}
}

func TestEachAlertIsTestedFiringAndSilent(t *testing.T) {
	checked, err := ReadAlertTests(tests)
	if err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range checked.Tests {
		for _, rule := range test.Rules {
			if len(rule.Alerts) > 0 {
				fires[rule.Alert] = true
			} else {
				silent[rule.Alert] = true
			}
		}
	}
	for _, alert := range alerts(t) {
		if !fires[alert.Name] || !silent[alert.Name] {
			t.Errorf("%s is tested firing: %t, silent: %t; want both", alert.Name, fires[alert.Name], silent[alert.Name])
		}
	}
}

func TestPrometheusRuleHasTheSameGroups(t *testing.T) {
	var file, object map[string]any
	for path, into := range map[string]*map[string]any{rules: &file, operator: &object} {
		if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if diff := cmp.Diff(any(file), object["spec"]); diff != "" {
		t.Errorf("run make manifests: the rules (-rules.yaml +prometheusrule.yaml):\n%s", diff)
	}
}

func alerts(t *testing.T) []Alert {
	t.Helper()
	alerts, err := ReadAlerts(rules)
	if err != nil {
		t.Fatal(err)
	}
	if len(alerts) == 0 {
		t.Fatal("the file of rules has no alert")
	}
	return alerts
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
