package rolloutview

import "strings"

// Style is the meaning of a text. Each meaning is in the text as well: colors add nothing.
type Style int

// Styles of segments.
const (
	StylePlain    Style = iota
	StyleStrong         // names, headings
	StyleFaint          // less important, or not reached yet
	StyleServing        // pods with traffic
	StyleWaiting        // pods that wait for rules
	StyleOff            // pods off traffic
	StyleStarting       // pods that have not served yet
	StyleProblem        // lost requests, budgets that are exceeded
)

// escape returns the escape sequence of a style in the 16 colors of a terminal, which its user chooses.
func (s Style) escape() string {
	switch s {
	case StyleStrong:
		return "\x1b[1m"
	case StyleFaint, StyleStarting:
		return "\x1b[90m"
	case StyleServing:
		return "\x1b[32m"
	case StyleWaiting:
		return "\x1b[33m"
	case StyleOff:
		return "\x1b[36m"
	case StyleProblem:
		return "\x1b[31m"
	default:
		return ""
	}
}

// Segment is a piece of a line in one style.
type Segment struct {
	Text  string
	Style Style
}

// Line is one line of a frame. It does not end in a space.
type Line []Segment

// Text returns a line without styles.
func (l Line) Text() string {
	var text strings.Builder
	for _, segment := range l {
		text.WriteString(segment.Text)
	}
	return text.String()
}

// Colored returns a line with the escape sequences of its styles.
func (l Line) Colored() string {
	var text strings.Builder
	for _, segment := range l {
		begin := segment.Style.escape()
		text.WriteString(begin)
		text.WriteString(segment.Text)
		if begin != "" {
			text.WriteString("\x1b[0m")
		}
	}
	return text.String()
}

// cut shortens a line to a width, with an ellipsis in place of the rest, and takes spaces off its end. A
// line that wraps would break redrawing.
func (l Line) cut(width int) Line {
	total := 0
	for _, segment := range l {
		total += Width(segment.Text)
	}
	out := make(Line, 0, len(l))
	left := width
	for _, segment := range l {
		if total > width {
			if room := left; Width(segment.Text) >= room {
				segment.Text = cutText(segment.Text, room-1) + "…"
				out = append(out, segment)
				return out.trim()
			}
			left -= Width(segment.Text)
		}
		out = append(out, segment)
	}
	return out.trim()
}

func (l Line) trim() Line {
	for len(l) > 0 {
		last := &l[len(l)-1]
		last.Text = strings.TrimRight(last.Text, " ")
		if last.Text != "" {
			return l
		}
		l = l[:len(l)-1]
	}
	return l
}

// Frame is a view as lines that fit into a width and a height.
type Frame []Line

// Text returns a frame without styles; every line ends in a newline.
func (f Frame) Text() string { return f.join(Line.Text) }

// Colored returns a frame with the escape sequences of its styles.
func (f Frame) Colored() string { return f.join(Line.Colored) }

func (f Frame) join(form func(Line) string) string {
	var text strings.Builder
	for _, line := range f {
		text.WriteString(form(line))
		text.WriteByte('\n')
	}
	return text.String()
}

// Fit returns a frame whose lines are cut to a width and do not end in spaces.
func (f Frame) Fit(width int) Frame {
	for i := range f {
		f[i] = f[i].cut(width)
	}
	return f
}
