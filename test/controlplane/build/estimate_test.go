package build

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// compiled is a package of a recorded build.
type compiled struct {
	bytes        int64
	dependencies int
	took         time.Duration // of processor time
	shared       bool          // with the manager
}

func recorded(t *testing.T) []compiled {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "build.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var packages []compiled
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var c compiled
		var milliseconds, shared int
		if _, err := fmt.Sscan(lines.Text(), &c.bytes, &c.dependencies, &milliseconds, &shared); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		c.took, c.shared = time.Duration(milliseconds)*time.Millisecond, shared == 1
		packages = append(packages, c)
	}
	return packages
}

// TestTheTimeLeftIsHonest replays a recorded build on two processors: the time that is left is right within a third, or
// within 20 seconds of the last minute.
func TestTheTimeLeftIsHonest(t *testing.T) {
	const processors, link, firstLine = 2, 20 * time.Second, 15 * time.Second
	for name, built := range map[string]func(compiled) bool{
		"with nothing cached": func(compiled) bool { return true },
		"after the manager":   func(c compiled) bool { return !c.shared },
	} {
		t.Run(name, func(t *testing.T) {
			w := work{costs: map[string]float64{}, links: costOfKubeLink + costOfOwnLink}
			var whole time.Duration
			var packages []compiled
			for i, c := range recorded(t) {
				if built(c) {
					packages = append(packages, c)
					w.costs[fmt.Sprint("p", i)] = compileCost(c.bytes, c.dependencies)
					whole += c.took / processors
				}
			}
			whole += link
			r := newReader(w)
			r.processors = processors
			elapsed, i := time.Duration(0), 0
			for at, c := range recorded(t) {
				if !built(c) {
					continue
				}
				fmt.Fprintf(r, "p%d\n", at)
				actual := whole - elapsed
				if got, known := r.left(elapsed); elapsed > firstLine && (!known || (got-actual).Abs() > max(actual, time.Minute)/3) {
					t.Fatalf("after %s, at package %d of %d: %s are left, and the estimate is %s", elapsed, i, len(packages), actual, got)
				}
				elapsed += c.took / processors
				i++
			}
		})
	}
}

// TestTheTimeLeftIsHonestOnAFastMachine compares the estimates of a build whose clock was observed: it took 184 s, since its
// processors were almost twice as fast as those of the recorded costs.
func TestTheTimeLeftIsHonestOnAFastMachine(t *testing.T) {
	const whole, total = 184 * time.Second, 717.9
	for _, observed := range []struct {
		elapsed time.Duration
		done    float64
	}{
		{15 * time.Second, 80.7},
		{30 * time.Second, 152.6},
		{45 * time.Second, 188.6},
		{60 * time.Second, 245.9},
		{75 * time.Second, 286.0},
		{90 * time.Second, 334.5},
		{105 * time.Second, 422.0},
		{120 * time.Second, 508.1},
		{135 * time.Second, 563.6},
		{150 * time.Second, 579.5},
		{165 * time.Second, 625.1},
		{175 * time.Second, 645.6},
	} {
		r := newReader(work{})
		r.processors, r.total, r.done = 2, total, observed.done
		actual := whole - observed.elapsed
		if got, known := r.left(observed.elapsed); !known || (got-actual).Abs() > max(actual, time.Minute)/3 {
			t.Errorf("after %s: %s are left, and the estimate is %s", observed.elapsed, actual, got)
		}
	}
}

func TestProgressLine(t *testing.T) {
	r := newReader(work{costs: map[string]float64{"example.com/a": 10, "example.com/b": 30}, links: 60})
	r.began = time.Now().Add(-65 * time.Second)
	for _, step := range []struct{ output, want string }{
		{"", "  1m5s: compiled 0 of 2 packages, about"},
		{"example.com/a\n", "  1m5s: compiled 1 of 2 packages, about"},
		{"example.com/b\n", "  1m5s: compiled 2 of 2 packages, linking"},
	} {
		if _, err := io.WriteString(r, step.output); err != nil {
			t.Fatal(err)
		}
		if got := r.line(); !strings.HasPrefix(got, step.want) {
			t.Errorf("want %q, got %q", step.want, got)
		}
	}
}

// TestTheReaderSeparatesPackagesFromErrors writes the output of a build in pieces that end anywhere.
func TestTheReaderSeparatesPackagesFromErrors(t *testing.T) {
	output := "internal/goarch\nk8s.io/api/core/v1\n# example.com/broken\nmain.go:3:1: syntax error: oops\nexample.com/last\n"
	for size := 1; size <= len(output); size++ {
		r := newReader(work{})
		for piece := range bytes.Lines([]byte(output)) {
			for ; len(piece) > 0; piece = piece[min(size, len(piece)):] {
				if _, err := r.Write(piece[:min(size, len(piece))]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.compiled != 3 {
			t.Errorf("pieces of %d: compiled %d", size, r.compiled)
		}
		if got, want := r.complaints(), "# example.com/broken\nmain.go:3:1: syntax error: oops"; got != want {
			t.Errorf("pieces of %d: want %q, got %q", size, want, got)
		}
	}
}
