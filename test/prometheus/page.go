package prometheus

import (
	_ "embed" // The template.
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageTemplate string

// Drawn is a panel with the series of each of its targets.
type Drawn struct {
	Panel
	Series [][]Series
}

// Size of the drawing of a panel, in units of its SVG. A column of the grid is 60 wide, a row 30.
const (
	columnWidth = 60
	rowHeight   = 30
	titleHeight = 34
	leftMargin  = 62
	bottom      = 24
	legendRow   = 18
	ticks       = 4
)

// Height returns the height of the page of a dashboard in pixels.
func (d Dashboard) Height() int {
	rows := 0
	for _, panel := range d.Panels {
		rows = max(rows, panel.GridPos.Y+panel.GridPos.H)
	}
	return rows*rowHeight + 60
}

// Page writes the panels with their data as an HTML page without other files: a stand-in for Grafana, with
// its grid, units and legends.
func Page(out io.Writer, dashboard Dashboard, drawn []Drawn, from, to time.Time) error {
	type chart struct {
		Drawn
		Style template.CSS
		Stat  []figure
		Chart template.HTML
	}
	var charts []chart
	for _, d := range drawn {
		c := chart{Drawn: d, Style: template.CSS(fmt.Sprintf("grid-column: %d / span %d; grid-row: %d / span %d",
			d.GridPos.X+1, d.GridPos.W, d.GridPos.Y+1, d.GridPos.H))}
		switch d.Type {
		case "stat":
			c.Stat = figures(d)
		case "timeseries":
			c.Chart = template.HTML(lines(d, from, to)) //nolint:gosec // Built from numbers and escaped texts.
		}
		charts = append(charts, c)
	}
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("reading the template of the page: %w", err)
	}
	return t.Execute(out, map[string]any{
		"Title": dashboard.Title, "From": from.UTC().Format(time.TimeOnly), "To": to.UTC().Format(time.TimeOnly), "Panels": charts,
	})
}

// figure is a number of a panel, with its color.
type figure struct{ Text, Color string }

func figures(d Drawn) []figure {
	var found []figure
	for i, all := range d.Series {
		for _, series := range all {
			value := series.Points[len(series.Points)-1].Value
			text := Format(value, d.FieldConfig.Defaults.Unit)
			if d.Options.TextMode == "name" {
				text = Legend(d.Targets[i].LegendFormat, series.Labels)
			}
			found = append(found, figure{Text: text, Color: colorOf(d.FieldConfig.Defaults.Thresholds, value)})
		}
	}
	return found
}

// colorOf returns the color of the last step that a value reaches.
func colorOf(thresholds Thresholds, value float64) string {
	color := "text"
	for _, step := range thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			color = step.Color
		}
	}
	return color
}

// Legend replaces the labels in the text of a series.
func Legend(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return format
}

// Format returns a value in a unit of Grafana.
func Format(value float64, unit string) string {
	switch unit {
	case "s":
		for _, u := range []struct {
			name    string
			seconds float64
		}{{"d", 86400}, {"h", 3600}, {"min", 60}} {
			if math.Abs(value) >= 2*u.seconds {
				return strconv.FormatFloat(value/u.seconds, 'f', 1, 64) + " " + u.name
			}
		}
		if value != 0 && math.Abs(value) < 1 {
			return short(value*1000) + " ms"
		}
		return short(value) + " s"
	case "percentunit":
		return short(value*100) + " %"
	case "bytes":
		for _, u := range []string{"B", "KiB", "MiB"} {
			if math.Abs(value) < 1024 {
				return short(value) + " " + u
			}
			value /= 1024
		}
		return short(value) + " GiB"
	case "reqps", "ops":
		return short(value) + "/s"
	}
	return short(value)
}

// short returns a number with three significant digits.
func short(value float64) string {
	if value == 0 || math.Abs(value) < 1e-6 {
		return "0"
	}
	step := math.Pow(10, math.Floor(math.Log10(math.Abs(value)))-2)
	text := strconv.FormatFloat(math.Round(value/step)*step, 'f', max(0, int(-math.Floor(math.Log10(step)))), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// line is a series as it is drawn. Where lines are stacked, base has the points of the line below it.
type line struct {
	name         string
	points, base []Point
}

// lines draws the series of a panel.
func lines(d Drawn, from, to time.Time) string {
	stacked := d.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	drawn, highest := linesOf(d, stacked)
	width := float64(d.GridPos.W * columnWidth)
	legend := legendOf(drawn, width)
	height := float64(d.GridPos.H*rowHeight-titleHeight) - float64(len(legend)*legendRow)
	right, low := width-10, height-bottom
	if highest == 0 {
		highest = 1
	}
	x := func(t time.Time) float64 {
		return leftMargin + (right-leftMargin)*float64(t.Sub(from))/float64(to.Sub(from))
	}
	y := func(v float64) float64 { return low - (low-8)*v/(highest*1.05) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g">`, width, height+float64(len(legend)*legendRow))
	for i := range ticks + 1 {
		value := highest * float64(i) / ticks
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%g" y1="%g" y2="%g"/><text class="axis end" x="%d" y="%g">%s</text>`,
			leftMargin, right, y(value), y(value), leftMargin-6, y(value)+4, template.HTMLEscapeString(Format(value, d.FieldConfig.Defaults.Unit)))
	}
	for i := range 3 {
		at := from.Add(to.Sub(from) * time.Duration(i) / 2)
		fmt.Fprintf(&b, `<text class="axis" x="%g" y="%g">%s</text>`, x(at)-float64(25*i), height-4, at.UTC().Format(time.TimeOnly))
	}
	for i, l := range drawn {
		l.draw(&b, i%colors, x, y)
	}
	for row, entries := range legend {
		for _, entry := range entries {
			at := height + float64(row*legendRow) + 10
			fmt.Fprintf(&b, `<rect class="c%d" x="%g" y="%g" width="14" height="4"/><text class="name" x="%g" y="%g">%s</text>`,
				entry.color, entry.x, at-3, entry.x+18, at+3, template.HTMLEscapeString(entry.name))
		}
	}
	b.WriteString("</svg>")
	return b.String()
}

// linesOf returns the lines of a panel in the order of their names, and their highest point.
func linesOf(d Drawn, stacked bool) (drawn []line, highest float64) {
	for i, all := range d.Series {
		for _, series := range all {
			drawn = append(drawn, line{name: Legend(d.Targets[i].LegendFormat, series.Labels), points: series.Points})
		}
	}
	slices.SortStableFunc(drawn, func(a, b line) int { return strings.Compare(a.name, b.name) })
	if stacked {
		stack(drawn)
	}
	for _, l := range drawn {
		for _, point := range l.points {
			highest = max(highest, point.Value)
		}
	}
	return drawn, highest
}

// stack has each line begin where the line below it ends. A series without a value at a time of another counts as 0.
func stack(drawn []line) {
	sums := map[time.Time]float64{}
	for _, l := range drawn {
		for _, point := range l.points {
			sums[point.Time] = 0
		}
	}
	times := slices.SortedFunc(maps.Keys(sums), time.Time.Compare)
	for i := range drawn {
		l, values := &drawn[i], map[time.Time]float64{}
		for _, point := range l.points {
			values[point.Time] = point.Value
		}
		l.points = nil
		for _, at := range times {
			l.base = append(l.base, Point{Time: at, Value: sums[at]})
			sums[at] += values[at]
			l.points = append(l.points, Point{Time: at, Value: sums[at]})
		}
	}
}

// colors is how many classes of colors the page has.
const colors = 12

func (l line) draw(b *strings.Builder, color int, x func(time.Time) float64, y func(float64) float64) {
	var path, back []string
	for i, point := range l.points {
		// A gap of a series is a gap of its line.
		command := "L"
		if i == 0 || point.Time.Sub(l.points[i-1].Time) > gap {
			command = "M"
		}
		path = append(path, fmt.Sprintf("%s%.1f %.1f", command, x(point.Time), y(point.Value)))
	}
	for _, point := range slices.Backward(l.base) {
		back = append(back, fmt.Sprintf("L%.1f %.1f", x(point.Time), y(point.Value)))
	}
	if len(back) > 0 {
		fmt.Fprintf(b, `<path class="area c%d" d="%s %sZ"/>`, color, strings.Join(path, ""), strings.Join(back, ""))
	}
	fmt.Fprintf(b, `<path class="line c%d" d="%s"/>`, color, strings.Join(path, ""))
}

// gap is from which distance two points are not connected.
const gap = 3 * time.Second

// entry is a name in a legend.
type entry struct {
	name  string
	color int
	x     float64
}

// legendOf returns the rows of the legend.
func legendOf(drawn []line, width float64) (rows [][]entry) {
	const letter, most = 7.0, 4
	x := 0.0
	for i, l := range drawn {
		need := 36 + letter*float64(len(l.name))
		if len(rows) == 0 || x+need > width {
			if len(rows) == most {
				break
			}
			rows, x = append(rows, nil), 10
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], entry{name: l.name, color: i % colors, x: x})
		x += need
	}
	return rows
}
