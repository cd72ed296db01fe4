package timeline

import (
	"fmt"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// drawing is how a phase looks on a terminal and on a page.
type drawing struct {
	phase       rolloutview.Phase
	block       rune
	style       rolloutview.Style
	light, dark string // colors of the page
}

// drawings returns the phases that a timeline draws. Blocks differ, so that a chart is read without colors.
func drawings() []drawing {
	return []drawing{
		{phase: rolloutview.PhaseStarting, block: '·', style: rolloutview.StyleStarting, light: "#b4bcc8", dark: "#5b6675"},
		{phase: rolloutview.PhaseAvailable, block: '█', style: rolloutview.StyleServing, light: "#2f9e63", dark: "#37b26f"},
		{phase: rolloutview.PhasePreCheck, block: '▒', style: rolloutview.StyleWaiting, light: "#e3a008", dark: "#d9a21b"},
		{phase: rolloutview.PhasePreparing, block: '░', style: rolloutview.StyleOff, light: "#63b3ed", dark: "#4299e1"},
		{phase: rolloutview.PhaseOperating, block: '▚', style: rolloutview.StyleOff, light: "#2b6cb0", dark: "#2c6fbb"},
		{phase: rolloutview.PhasePostCheck, block: '▒', style: rolloutview.StyleWaiting, light: "#b7791f", dark: "#a5701d"},
		{phase: rolloutview.PhaseCompleting, block: '▓', style: rolloutview.StyleOff, light: "#4fa8a0", dark: "#4d9f98"},
		{phase: rolloutview.PhaseNotReady, block: '!', style: rolloutview.StyleProblem, light: "#d64545", dark: "#e05a5a"},
		{phase: rolloutview.PhaseOffline, block: '-', style: rolloutview.StyleFaint, light: "#8463b8", dark: "#9a7fd1"},
		{phase: rolloutview.PhaseTerminating, block: 'x', style: rolloutview.StyleFaint, light: "#7d8896", dark: "#8d99a6"},
		{phase: rolloutview.PhaseFinished, block: ' ', style: rolloutview.StyleFaint, light: "#d5dae1", dark: "#3d4652"},
	}
}

func phaseDrawing(phase rolloutview.Phase) drawing {
	for _, drawing := range drawings() {
		if drawing.phase == phase {
			return drawing
		}
	}
	return drawing{phase: phase, block: '?'}
}

// used returns the phases that occur in a timeline.
func (t Timeline) used() []drawing {
	seen := map[rolloutview.Phase]bool{}
	for _, pod := range t.Pods {
		for _, span := range pod.Spans {
			seen[span.Phase] = true
		}
	}
	var used []drawing
	for _, drawing := range drawings() {
		if seen[drawing.phase] {
			used = append(used, drawing)
		}
	}
	return used
}

// Frame returns a timeline as lines of at most width columns: a row with a bar for each pod, and the time that
// the pods spent in each phase; for one pod its phases with their times and sources.
func (t Timeline) Frame(width int) rolloutview.Frame {
	width = max(width, rolloutview.MinWidth)
	names := 1
	for _, pod := range t.Pods {
		names = max(names, rolloutview.Width(pod.Name))
	}
	names = min(names, max(8, width/3))
	columns := max(8, width-names-2)
	lines := rolloutview.Frame{{{Text: t.Title, Style: rolloutview.StyleStrong}, {Text: ": " + t.extent()}}}
	if len(t.Pods) == 0 {
		return lines.Fit(width)
	}
	lines = append(lines, t.axis(names, columns))
	revision := ""
	for _, pod := range t.Pods {
		if pod.Revision != revision && len(t.Pods) > 1 {
			revision = pod.Revision
			lines = append(lines, rolloutview.Line{{Text: revision, Style: rolloutview.StyleFaint}})
		}
		lines = append(lines, append(rolloutview.Line{{Text: pad(cutLeft(pod.Name, names), names) + "  "}}, t.bar(pod, columns)...))
	}
	lines = append(lines, nil, t.legend(), nil)
	if len(t.Pods) == 1 {
		lines = append(lines, t.Pods[0].table()...)
	} else {
		lines = append(lines, t.table()...)
	}
	for _, note := range t.Notes {
		lines = append(lines, rolloutview.Line{{Text: note, Style: rolloutview.StyleFaint}})
	}
	return lines.Fit(width)
}

// extent returns the number of pods and the time of a timeline.
func (t Timeline) extent() string {
	count := fmt.Sprintf("%d pods", len(t.Pods))
	if len(t.Pods) == 1 {
		count = "1 pod"
	}
	if len(t.Pods) == 0 {
		return "no pods"
	}
	return fmt.Sprintf("%s, %s to %s (%s)", count, t.From.Format(time.TimeOnly), t.To.Format(time.TimeOnly), short(t.To.Sub(t.From)))
}

// axis returns the line with the time since the beginning, above the bars.
func (t Timeline) axis(names, columns int) rolloutview.Line {
	text := []rune(strings.Repeat(" ", columns))
	total := t.To.Sub(t.From)
	const gap = 12
	step := tickStep(total, columns/gap)
	for at := time.Duration(0); at < total; at += step {
		column := int(at * time.Duration(columns) / total)
		label := []rune("|" + short(at))
		if column+len(label) <= columns {
			copy(text[column:], label)
		}
	}
	return rolloutview.Line{{Text: strings.Repeat(" ", names+2) + string(text), Style: rolloutview.StyleFaint}}
}

// tickStep returns the round time between two ticks of an axis that has at most so many.
func tickStep(total time.Duration, most int) time.Duration {
	const day = 24 * time.Hour
	units := []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute,
		time.Hour, 6 * time.Hour,
	}
	for _, unit := range units {
		for _, count := range []int{1, 2, 3, 5} {
			if step := time.Duration(count) * unit; total <= time.Duration(most)*step {
				return step
			}
		}
	}
	days := int(total/day)/max(most, 1) + 1
	return time.Duration(days) * day
}

// bar returns the phases of a pod as blocks. Each phase has at least one, as long as there are enough.
func (t Timeline) bar(pod Pod, columns int) []rolloutview.Segment {
	cells := make([]rolloutview.Phase, columns)
	total := t.To.Sub(t.From)
	column := func(at time.Time) int {
		if total <= 0 {
			return 0
		}
		return min(columns-1, int(at.Sub(t.From)*time.Duration(columns)/total))
	}
	for _, span := range pod.Spans {
		from, to := column(span.From), column(span.To)
		if span.To.Equal(t.To) && !pod.Gone {
			to = columns
		}
		for i := from; i < max(to, from+1); i++ {
			cells[i] = span.Phase
		}
	}
	var line []rolloutview.Segment
	for i := 0; i < columns; {
		end := i
		for end < columns && cells[end] == cells[i] {
			end++
		}
		segment := rolloutview.Segment{Text: strings.Repeat(" ", end-i)}
		if cells[i] != "" {
			drawing := phaseDrawing(cells[i])
			segment = rolloutview.Segment{Text: strings.Repeat(string(drawing.block), end-i), Style: drawing.style}
		}
		line = append(line, segment)
		i = end
	}
	return line
}

func (t Timeline) legend() rolloutview.Line {
	var line rolloutview.Line
	for _, drawing := range t.used() {
		line = append(line, rolloutview.Segment{Text: string(drawing.block), Style: drawing.style}, rolloutview.Segment{Text: " " + string(drawing.phase) + "  "})
	}
	return line
}

// table returns the phase durations of all pods.
func (t Timeline) table() []rolloutview.Line {
	phases := t.Summary()
	if len(phases) == 0 {
		return nil
	}
	lines := []rolloutview.Line{{{Text: fmt.Sprintf("%-12s %5s  %9s  %9s", "PHASE", "TIMES", "MEDIAN", "LONGEST")}}}
	for _, phase := range phases {
		lines = append(lines, rolloutview.Line{{Text: fmt.Sprintf("%-12s %5d  %9s  %9s", phase.Phase, phase.Count, short(phase.Median), short(phase.Most))}})
	}
	return lines
}

// table returns the phases of one pod.
func (p Pod) table() []rolloutview.Line {
	lines := []rolloutview.Line{{{Text: fmt.Sprintf("%-12s %-12s  %9s  %-9s %s", "PHASE", "FROM", "DURATION", "PRECISION", "SOURCE")}}}
	for _, span := range p.Spans {
		lines = append(lines, rolloutview.Line{{Text: fmt.Sprintf("%-12s %-12s  %9s  %-9s %s",
			span.Phase, span.clock(), short(span.Duration()), span.Precision, span.Source)}})
	}
	return lines
}

// clock returns the beginning of a phase, with as many digits as are known.
func (s Span) clock() string {
	if s.Precision == Second {
		return s.From.Format(time.TimeOnly)
	}
	return s.From.Format("15:04:05.000")
}

// short returns a duration in about three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// pad returns a text with spaces up to so many columns.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-rolloutview.Width(text)))
}

// cutLeft shortens a name at its beginning: names of pods differ at the end.
func cutLeft(name string, columns int) string {
	letters := []rune(name)
	if len(letters) <= columns {
		return name
	}
	return "…" + string(letters[len(letters)-columns+1:])
}
