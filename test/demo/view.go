package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// totalsInterval is the least time between two lines of totals where nothing is redrawn.
const totalsInterval = time.Second

// view shows the rollout as kubectl podops get --watch does: a frame that is redrawn in place on a
// terminal, a line for each change elsewhere.
type view struct {
	out           io.Writer
	width, height int // of the terminal; 0: out is no terminal
	colors        bool
	drawn         int              // lines on the screen
	shown         rolloutview.View // was last printed
	totals        string           // the last line of totals
	totalsAt      time.Time
}

// newView returns a view of a terminal with so many columns and rows, or of a file or a pipe (0).
func newView(out io.Writer, width, height int) *view {
	return &view{out: out, width: width, height: height, colors: os.Getenv("NO_COLOR") == ""}
}

// print writes a text that stays, after an empty line.
func (v *view) print(format string, args ...any) {
	v.erase()
	fmt.Fprintf(v.out, "\n"+format+"\n", args...)
}

// show draws the frame on a terminal. Elsewhere it prints the pods that changed, and the totals.
func (v *view) show(now rolloutview.View) {
	if v.width > 0 {
		v.redraw(now)
		return
	}
	for _, change := range rolloutview.Changes(v.shown, now) {
		fmt.Fprintln(v.out, "  "+change.String())
	}
	v.shown = now
	if totals := now.Summary(); totals != v.totals && now.Time.Sub(v.totalsAt) >= totalsInterval {
		v.totals, v.totalsAt = totals, now.Time.Time
		fmt.Fprintln(v.out, "  "+totals)
	}
}

// redraw replaces the last frame on the screen, below an empty line. One row is left to the cursor.
func (v *view) redraw(now rolloutview.View) {
	frame := append(rolloutview.Frame{nil}, now.Frame(v.width, max(1, v.height-2))...)
	text := frame.Text()
	if v.colors {
		text = frame.Colored()
	}
	v.erase()
	fmt.Fprint(v.out, text)
	v.drawn = len(frame)
}

// erase takes the drawn lines off the screen.
func (v *view) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}
