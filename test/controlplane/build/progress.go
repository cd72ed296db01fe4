package build

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	redrawInterval = 250 * time.Millisecond // on a terminal
	lineInterval   = 15 * time.Second       // anywhere else, a log for example
	// complaintLines is the number of lines of compiler errors that are kept.
	complaintLines = 30
)

// progress shows the progress of `go build -v`. It reads the error output of the command:
// the import path of each package that is about to be compiled, one per line, and errors.
// It is safe for one writer besides its own clock.
type progress struct {
	out      io.Writer
	terminal bool
	total    int
	began    time.Time
	done     chan struct{}
	finished sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	partial    string     // a line without its end
	compiled   int
	current    string
	complained []string
}

func newProgress(out io.Writer, total int) *progress {
	p := &progress{out: out, terminal: isTerminal(out), total: total, began: time.Now(), done: make(chan struct{})}
	interval := lineInterval
	if p.terminal {
		interval = redrawInterval
	}
	p.finished.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-ticker.C:
				p.draw()
			}
		}
	})
	return p
}

// Write takes error output of the build. It never fails.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := strings.Split(p.partial+string(data), "\n")
	p.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		p.take(line)
	}
	return len(data), nil
}

var importPath = regexp.MustCompile(`^[A-Za-z0-9_.~-]+(/[A-Za-z0-9_.~-]+)*$`)

func (p *progress) take(line string) {
	switch {
	case importPath.MatchString(line):
		p.compiled++
		p.current = line
	case strings.TrimSpace(line) != "" && len(p.complained) < complaintLines:
		p.complained = append(p.complained, line)
	}
}

// close ends the output; on a terminal it clears the line.
func (p *progress) close() {
	close(p.done)
	p.finished.Wait()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// complaints returns the lines that are not package names: compiler errors.
func (p *progress) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.complained, "\n")
}

func (p *progress) draw() {
	p.mu.Lock()
	line := statusLine(p.compiled, p.total, p.current, time.Since(p.began))
	p.mu.Unlock()
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// statusLine returns the progress of the build. Packages in the build cache are not
// compiled again and not counted, so total is only a bound.
func statusLine(compiled, total int, current string, elapsed time.Duration) string {
	elapsed = elapsed.Round(time.Second)
	switch current {
	case "":
		return fmt.Sprintf("  %s: checking the build cache", elapsed)
	case modulePath + "/cmd/kube", modulePath + "/oldest":
		return fmt.Sprintf("  %s: compiled %d packages, linking", elapsed, compiled)
	}
	if len(current) > 50 {
		current = "..." + current[len(current)-47:]
	}
	return fmt.Sprintf("  %s: compiled %d of at most %d packages, now %s", elapsed, compiled, total, current)
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
