package timeline

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var pageText string

//go:embed picture.svg
var pictureText string

// layout has the sizes of a chart, in the units of its view box.
type layout struct {
	names, chart int // widths
	top          int // height above the axis
}

const (
	rowHeight  = 18
	barHeight  = 12
	axisHeight = 24
	ticks      = 6

	// Legend entry sizes in a monospaced font.
	legendHeight = 20
	legendLetter = 7
	legendGap    = 34
)

// page is the data of the template.
type page struct {
	Timeline
	Extent        string
	Legend        []legendEntry
	Rows          []row
	Ticks         []tick
	Width, Height int
	Top           int // of the axis
	Summary       []summaryRow
}

type legendEntry struct {
	Phase, Class, Light, Dark string
	X                         int
}

type row struct {
	Name, Revision string
	Y, TextY       int
	Rects          []rect
}

type rect struct {
	X, Width              float64
	Y, Height             int
	Class, Title          string
	Phase, From, Duration string
	Source                string
	Precision             Precision
}

type tick struct {
	X     float64
	Label string
}

type summaryRow struct {
	Phase        string
	Count        int
	Median, Most string
}

// HTML writes a timeline as a page that needs no other file: a chart, and a table with the same content.
func (t Timeline) HTML(out io.Writer) error {
	return t.write(out, layout{names: 240, chart: 1000}, pictureText, pageText)
}

// SVG writes the chart of a timeline as a picture in the colors of the reader's choice, light or dark.
func (t Timeline) SVG(out io.Writer) error {
	return t.write(out, layout{names: 150, chart: 690, top: legendHeight}, pictureText)
}

// write executes the last of the templates, which may use what the others define.
func (t Timeline) write(out io.Writer, l layout, texts ...string) error {
	parsed := template.New("timeline").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }})
	for _, text := range texts {
		if _, err := parsed.Parse(text); err != nil {
			return fmt.Errorf("reading the template of the timeline: %w", err)
		}
	}
	if err := parsed.Execute(out, t.page(l)); err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}

func (t Timeline) page(l layout) page {
	p := page{Timeline: t, Extent: t.extent(), Width: l.names + l.chart, Height: l.top + axisHeight + rowHeight*len(t.Pods), Top: l.top}
	left := 0
	for _, drawing := range t.used() {
		name := string(drawing.phase)
		p.Legend = append(p.Legend, legendEntry{name, phaseClass(name), drawing.light, drawing.dark, left})
		left += legendLetter*len(name) + legendGap
	}
	total := max(t.To.Sub(t.From), time.Nanosecond)
	x := func(at time.Time) float64 {
		return float64(l.names) + float64(l.chart)*float64(at.Sub(t.From))/float64(total)
	}
	step := tickStep(total, ticks)
	for at := time.Duration(0); at < total; at += step {
		p.Ticks = append(p.Ticks, tick{x(t.From.Add(at)), short(at)})
	}
	for i, pod := range t.Pods {
		y := l.top + axisHeight + i*rowHeight
		out := row{Name: pod.Name, Revision: pod.Revision, Y: y, TextY: y + barHeight}
		for _, span := range pod.Spans {
			out.Rects = append(out.Rects, rect{
				X: x(span.From), Width: max(1.5, x(span.To)-x(span.From)), Y: y + (rowHeight-barHeight)/2, Height: barHeight,
				Class: phaseClass(string(span.Phase)), Phase: string(span.Phase), From: span.clock(), Duration: short(span.Duration()),
				Source: span.Source, Precision: span.Precision,
				Title: fmt.Sprintf("%s: %s for %s, from %s", pod.Name, span.Phase, short(span.Duration()), span.clock()),
			})
		}
		p.Rows = append(p.Rows, out)
	}
	for _, phase := range t.Summary() {
		p.Summary = append(p.Summary, summaryRow{string(phase.Phase), phase.Count, short(phase.Median), short(phase.Most)})
	}
	return p
}

func phaseClass(phase string) string { return "phase-" + phase }
