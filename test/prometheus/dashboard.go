package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Dashboard is the part of Grafana's JSON model that the checks and the picture need.
type Dashboard struct {
	Title         string     `json:"title"`
	UID           string     `json:"uid"`
	SchemaVersion int        `json:"schemaVersion"`
	Panels        []Panel    `json:"panels"`
	Templating    Templating `json:"templating"`
}

// Templating has the variables of a dashboard.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is a choice of the reader.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Query any    `json:"query"`
}

// Panel is a row, or a picture of the results of its targets.
type Panel struct {
	ID          int        `json:"id"`
	Title       string     `json:"title"`
	Type        string     `json:"type"`
	Description string     `json:"description"`
	Datasource  Datasource `json:"datasource"`
	GridPos     GridPos    `json:"gridPos"`
	Targets     []Target   `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit       string     `json:"unit"`
			Thresholds Thresholds `json:"thresholds"`
			Custom     struct {
				Stacking struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Options struct {
		TextMode string `json:"textMode"`
	} `json:"options"`
}

// Datasource names where a panel reads from.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// GridPos is a place on a grid of 24 columns.
type GridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is an expression and the text for each of its series.
type Target struct {
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Instant      bool       `json:"instant"`
	Datasource   Datasource `json:"datasource"`
}

// Thresholds are the colors of values.
type Thresholds struct {
	Steps []Step `json:"steps"`
}

// Step is the color of values that are not below Value; nil is below all.
type Step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// ReadDashboard reads the JSON model of a dashboard.
func ReadDashboard(path string) (Dashboard, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Dashboard{}, fmt.Errorf("reading the dashboard: %w", err)
	}
	var d Dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return Dashboard{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return d, nil
}

// IsRow reports whether the panel is only the title of those below it.
func (p Panel) IsRow() bool { return p.Type == "row" }

// Interpolate replaces the variables of an expression, as Grafana does before it queries.
func Interpolate(expression string, values map[string]string) string {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "$"+name, value, "${"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(expression)
}
