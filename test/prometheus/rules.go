package prometheus

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// Alert is a rule of a file of rules of Prometheus.
type Alert struct {
	Name        string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// AlertTests are the tests of a file of promtool.
type AlertTests struct {
	Tests []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert  string           `json:"alertname"`
			Alerts []map[string]any `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

// ReadAlerts reads a file of rules.
func ReadAlerts(path string) ([]Alert, error) {
	var file struct {
		Groups []struct {
			Rules []Alert `json:"rules"`
		} `json:"groups"`
	}
	if err := readYAML(path, &file); err != nil {
		return nil, err
	}
	var alerts []Alert
	for _, group := range file.Groups {
		alerts = append(alerts, group.Rules...)
	}
	return alerts, nil
}

// ReadAlertTests reads a file of tests.
func ReadAlertTests(path string) (AlertTests, error) {
	var tests AlertTests
	return tests, readYAML(path, &tests)
}

func readYAML(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a file of rules: %w", err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
