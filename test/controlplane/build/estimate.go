package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podops-dev/podops/test/controlplane/progress"
)

// What a build takes, in seconds of processor time, as measured in a build of everything: testdata/build.txt.
const (
	costOfPackage    = 0.05   // starting the compiler
	costOfMegabyte   = 2.0    // of Go files
	costOfDependency = 0.0006 // reading what the compiler needs of it

	// A link is done by one processor while others have nothing to do.
	costOfKubeLink = 60.0
	costOfOwnLink  = 10.0

	// priorTime is the time for which a build counts as having run before it began, with every processor at work, at
	// priorRate: the first packages are small, and their rate is not that of the others.
	priorTime = 15 * time.Second
	priorRate = 1.5 // cost for each second of a processor, on present machines
)

// complaintLines is the number of lines of compiler errors that are kept.
const complaintLines = 30

// work is what a build has to do: the costs of the packages that are not in Go's build cache, and of the links.
type work struct {
	costs map[string]float64 // by import path
	links float64
}

func (w work) total() float64 {
	sum := w.links
	for _, cost := range w.costs {
		sum += cost
	}
	return sum
}

// compileCost returns what it takes to compile a package with so many bytes of Go files, and so many dependencies.
func compileCost(bytes int64, dependencies int) float64 {
	return costOfPackage + costOfMegabyte*float64(bytes)/1e6 + costOfDependency*float64(dependencies)
}

// staleWork returns the work of a build of main packages.
func (t Target) staleWork(ctx context.Context, source string, buildFlags, mains []string) (work, error) {
	const format = `{{if .Stale}}{{.ImportPath}}|{{len .Deps}}|{{.Dir}}|{{join .GoFiles "|"}}{{end}}`
	list, err := goOutput(ctx, source, slices.Concat([]string{"list", "-deps", "-f", format}, buildFlags, mains)...)
	if err != nil {
		return work{}, err
	}
	w := work{costs: map[string]float64{}}
	for _, main := range mains {
		if main == t.kube {
			w.links += costOfKubeLink
		} else {
			w.links += costOfOwnLink
		}
	}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) < 4 {
			continue // A package in the cache leaves an empty line.
		}
		dependencies, err := strconv.Atoi(fields[1])
		if err != nil {
			return work{}, fmt.Errorf("reading the dependencies of %s: %w", fields[0], err)
		}
		var bytes int64
		for _, name := range fields[3:] {
			// A file that is missing is reported by the build.
			if info, err := os.Stat(filepath.Join(fields[2], name)); err == nil {
				bytes += info.Size()
			}
		}
		w.costs[fields[0]] = compileCost(bytes, dependencies)
	}
	return w, nil
}

// reader reads the error output of `go build -v`, which is the import path of each package that is about to be
// compiled, one per line, and errors. It is safe for concurrent use.
type reader struct {
	work  work
	total float64
	began time.Time

	processors int

	mu         sync.Mutex // guards the fields below
	partial    string     // a line without its end
	compiled   int
	done       float64 // cost of the packages before the last
	last       float64 // cost of the last package
	complained []string
}

func newReader(w work) *reader {
	return &reader{work: w, total: w.total(), began: time.Now(), processors: runtime.NumCPU()}
}

// Write takes error output of the build. It never fails.
func (r *reader) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := strings.Split(r.partial+string(data), "\n")
	r.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		r.take(line)
	}
	return len(data), nil
}

var importPath = regexp.MustCompile(`^[A-Za-z0-9_.~-]+(/[A-Za-z0-9_.~-]+)*$`)

func (r *reader) take(line string) {
	switch {
	case importPath.MatchString(line):
		r.compiled++
		r.done += r.last
		r.last = r.work.costs[line]
	case strings.TrimSpace(line) != "" && len(r.complained) < complaintLines:
		r.complained = append(r.complained, line)
	}
}

// complaints returns the lines that are not package names: compiler errors.
func (r *reader) complaints() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.complained, "\n")
}

func (r *reader) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	elapsed := time.Since(r.began)
	text := fmt.Sprintf("  %s: compiled %d of %d packages", elapsed.Round(time.Second), r.compiled, len(r.work.costs))
	if r.compiled >= len(r.work.costs) {
		return text + ", linking"
	}
	if left, known := r.left(elapsed); known {
		text += ", " + progress.Text(left)
	}
	return text
}

// left returns the time that the rest of the build takes.
func (r *reader) left(elapsed time.Duration) (left time.Duration, known bool) {
	prior := priorRate * priorTime.Seconds() * float64(r.processors)
	return progress.Left(elapsed+priorTime, r.done+prior, r.total+prior)
}
