// Package progress shows how far a fetch or a build of the control plane is, and how long it still takes.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	redrawInterval = 250 * time.Millisecond // on a terminal
	lineInterval   = 15 * time.Second       // anywhere else, a log for example
)

// Show prints line at intervals until stop is called: in place on a terminal, as a line of its own anywhere
// else. line is called by one goroutine at a time. stop waits until nothing is printed any more.
func Show(out io.Writer, line func() string) (stop func()) {
	format, interval := "%s\n", lineInterval
	if isTerminal(out) {
		format, interval = "\r\x1b[K%s", redrawInterval
	}
	done := make(chan struct{})
	var finished sync.WaitGroup
	finished.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(out, format, line())
			}
		}
	})
	return func() {
		close(done)
		finished.Wait()
		if isTerminal(out) {
			fmt.Fprint(out, "\r\x1b[K")
		}
	}
}

// Left returns the time that the rest of a work takes, at the rate of the part that is done. It is not known while
// too little is done.
func Left(elapsed time.Duration, done, total float64) (left time.Duration, known bool) {
	if done <= 0 || done > total || elapsed < time.Second {
		return 0, false
	}
	return time.Duration(float64(elapsed) * (total - done) / done), true
}

// Text returns a time that is left, for a user: "about 3 min left".
func Text(left time.Duration) string {
	switch {
	case left < 10*time.Second:
		return "a few seconds left"
	case left < 90*time.Second:
		return fmt.Sprintf("about %d s left", 5*int(left.Round(5*time.Second)/(5*time.Second)))
	case left < 5*time.Minute:
		// A minute would be a third of the time that is left.
		return fmt.Sprintf("about %g min left", left.Round(30*time.Second).Minutes())
	default:
		return fmt.Sprintf("about %d min left", int(left.Round(time.Minute)/time.Minute))
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
