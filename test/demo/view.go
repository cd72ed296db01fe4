package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// totalsInterval is the least time between two lines of totals where nothing is redrawn.
const totalsInterval = time.Second

// view shows the rollout: a frame that is redrawn in place on a terminal, a line for each
// change elsewhere.
type view struct {
	out      io.Writer
	terminal bool
	width    int             // columns of the terminal
	drawn    int             // lines on the screen
	printed  map[string]line // what was last printed of a pod
	totals   string          // the last line of totals
	totalsAt time.Time
}

// newView returns a view of a terminal with so many columns, or of a file or a pipe (0).
func newView(out io.Writer, columns int) *view {
	return &view{out: out, terminal: columns > 0, width: columns, printed: map[string]line{}}
}

// print writes a text that stays, after an empty line.
func (v *view) print(format string, args ...any) {
	v.erase()
	fmt.Fprintf(v.out, "\n"+format+"\n", args...)
}

// show draws the frame on a terminal. Elsewhere it prints the pods that changed, and the frame
// as a line of totals.
func (v *view) show(pods []line, f frame, now time.Time) {
	if v.terminal {
		v.redraw(f)
		return
	}
	for _, l := range pods {
		if v.printed[l.name] != l {
			v.printed[l.name] = l
			fmt.Fprintln(v.out, strings.TrimRight(fmt.Sprintf("  %-24s %-17s %s", l.name, l.phase, l.why), " "))
		}
	}
	if totals := totalsOf(f); totals != v.totals && now.Sub(v.totalsAt) >= totalsInterval {
		v.totals, v.totalsAt = totals, now
		fmt.Fprintln(v.out, totals)
	}
}

// totalsOf returns the frame in one line.
func totalsOf(f frame) string {
	return fmt.Sprintf("  old: %d serving, %d waiting, %d off traffic, %d gone; new: %d serving, %d starting; unavailable %d (limit %d); requests %s, failed %s",
		f.old.serving, f.old.waiting, f.old.off, f.old.gone, f.new.serving, f.new.starting,
		f.unavailable, f.limit, thousands(f.requests), thousands(f.failed))
}

// redraw replaces the last frame on the screen.
func (v *view) redraw(f frame) {
	v.erase()
	lines := f.lines(min(v.width, frameColumns))
	var text strings.Builder
	text.WriteString("\x1b[K\n") // An empty line above the frame.
	for _, l := range lines {
		text.WriteString(coloured(l, f.failed > 0))
		text.WriteString("\x1b[K\n")
	}
	fmt.Fprint(v.out, text.String())
	v.drawn = len(lines) + 1
}

// erase takes the drawn lines off the screen.
func (v *view) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

// coloured returns a line of a frame with its blocks, and lost requests, in colours.
func coloured(text string, failed bool) string {
	colours := []string{}
	for block, colour := range map[rune]string{servingBlock: "32", waitingBlock: "33", offBlock: "36", startingBlock: "90"} {
		colours = append(colours, string(block), "\x1b["+colour+"m"+string(block)+"\x1b[0m")
	}
	if failed {
		colours = append(colours, "failed", "\x1b[31mfailed\x1b[0m")
	}
	return strings.NewReplacer(colours...).Replace(text)
}
