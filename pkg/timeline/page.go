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

const (
	// Sizes of the chart, in the units of its view box.
	chartWidth = 1000
	rowHeight  = 18
	barHeight  = 12
	nameWidth  = 240
	axisHeight = 24
	ticks      = 6
)

// page is the data of the template.
type page struct {
	Timeline
	Extent        string
	Legend        []legendEntry
	Rows          []row
	Ticks         []tick
	Width, Height int
	Summary       []summaryRow
}

type legendEntry struct{ Phase, Class, Light, Dark string }

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
	parsed, err := template.New("timeline").Parse(pageText)
	if err != nil {
		return fmt.Errorf("reading the template of the page: %w", err)
	}
	if err := parsed.Execute(out, t.page()); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func (t Timeline) page() page {
	p := page{Timeline: t, Extent: t.extent(), Width: nameWidth + chartWidth, Height: axisHeight + rowHeight*len(t.Pods)}
	for _, drawing := range t.used() {
		name := string(drawing.phase)
		p.Legend = append(p.Legend, legendEntry{name, classOf(name), drawing.light, drawing.dark})
	}
	total := max(t.To.Sub(t.From), time.Nanosecond)
	x := func(at time.Time) float64 { return nameWidth + chartWidth*float64(at.Sub(t.From))/float64(total) }
	for i := range ticks {
		at := total * time.Duration(i) / ticks
		p.Ticks = append(p.Ticks, tick{x(t.From.Add(at)), short(at)})
	}
	for i, pod := range t.Pods {
		y := axisHeight + i*rowHeight
		out := row{Name: pod.Name, Revision: pod.Revision, Y: y, TextY: y + barHeight}
		for _, span := range pod.Spans {
			out.Rects = append(out.Rects, rect{
				X: x(span.From), Width: max(1.5, x(span.To)-x(span.From)), Y: y + (rowHeight-barHeight)/2, Height: barHeight,
				Class: classOf(string(span.Phase)), Phase: string(span.Phase), From: span.clock(), Duration: short(span.Duration()),
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

func classOf(phase string) string { return "phase-" + phase }
