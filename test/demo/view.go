package main

import (
	"fmt"
	"io"
	"strings"
)

// view shows the pods: redrawn in place on a terminal, a line per change elsewhere.
type view struct {
	out      io.Writer
	terminal bool
	width    int             // columns of the terminal
	drawn    int             // lines on the screen
	said     map[string]line // what was last said of a pod
}

// newView returns a view of a terminal with so many columns, or of something that is
// none (0).
func newView(out io.Writer, columns int) *view {
	return &view{out: out, terminal: columns > 0, width: columns, said: map[string]line{}}
}

// say prints a line that stays.
func (v *view) say(format string, args ...any) {
	v.erase()
	fmt.Fprintf(v.out, format+"\n", args...)
}

func (v *view) show(lines []line, worst int) {
	if v.terminal {
		v.redraw(lines, worst)
		return
	}
	for _, l := range lines {
		if v.said[l.name] != l {
			v.said[l.name] = l
			fmt.Fprintln(v.out, strings.TrimRight(fmt.Sprintf("  %-24s %-17s %s", l.name, l.phase, l.why), " "))
		}
	}
}

func (v *view) redraw(lines []line, worst int) {
	v.erase()
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "  %-24s %s%-17s\x1b[0m %s\x1b[K\n", l.name, colour(l.phase), l.phase, cut(l.why, v.width-nameAndPhase))
	}
	fmt.Fprintf(&text, "  most unavailable so far: %d, limit %d\x1b[K\n", worst, limit)
	fmt.Fprint(v.out, text.String())
	v.drawn = len(lines) + 1
}

// nameAndPhase is how many columns stand before the reason.
const nameAndPhase = 46

// cut shortens a text so that it does not wrap, which would break the redrawing.
func cut(text string, columns int) string {
	if letters := []rune(text); len(letters) > columns {
		return string(letters[:max(0, columns)])
	}
	return text
}

// erase takes the drawn lines off the screen.
func (v *view) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

func colour(p phase) string {
	switch p {
	case available:
		return "\x1b[32m"
	case waiting:
		return "\x1b[33m"
	case preparing, operating:
		return "\x1b[36m"
	case terminating:
		return "\x1b[90m"
	default:
		return "\x1b[35m"
	}
}
