package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podops-dev/podops/test/audit"
)

const (
	// settling is the time for which a manager rests before its memory is read.
	settling = 15 * time.Second

	// quiet is how long a manager sends no request once lifecycles are over, and
	// quietPatience how long that may take: events are sent at a bounded rate.
	quiet, quietPatience = 3 * time.Second, 2 * time.Minute

	// profiling is the duration of a profile.
	profiling = 30 * time.Second

	// warmup lifecycles precede the measured lifecycles: a new manager compiles rules.
	warmup = 40

	// alone is the number of lifecycles that are measured one after the other.
	alone = 50
)

// figures were measured at one number of pods.
type figures struct {
	pods int

	// grown is the memory after pods were created, started the memory of a new manager,
	// worked the memory after lifecycles.
	grown, started, worked memory

	// cpu is the processor time of the manager for a lifecycle, idle its processor time for a
	// second at rest. The first includes the second for as long as the lifecycles take.
	cpu, idle time.Duration

	// rate is the number of lifecycles that were completed in a second.
	rate float64

	// delays are the sorted times between the request of an operation and the permission to carry it out, of lifecycles
	// one after the other.
	delays []time.Duration

	// requests of the manager for a lifecycle, by verb and resource.
	requests map[string]float64
}

// delay is a percentile of the delays.
func (f figures) delay(percent int) time.Duration { return f.delays[(len(f.delays)-1)*percent/100] }

// resident is the most memory of the three, in bytes.
func (f figures) resident() int64 {
	return max(f.grown.resident, f.started.resident, f.worked.resident)
}

// total is all requests for a lifecycle.
func (f figures) total() float64 {
	sum := 0.0
	for _, each := range f.requests {
		sum += each
	}
	return sum
}

// memory of a process, in bytes.
type memory struct {
	resident, peak int64

	// heap is the heap in use.
	heap int64
}

// lifecycles updates pods in place and adds the cost to the figures.
func lifecycles(ctx context.Context, s *server, m *manager, f *fleet, count int, at *figures) error {
	if err := f.update(ctx, warmup, atOnce); err != nil {
		return err
	}
	if _, err := s.awaitQuiet(ctx, 0); err != nil {
		return err
	}
	mark, err := s.audit.Mark()
	if err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- m.saveProfiles(s.options.dir, at.pods) }()
	began, before := time.Now(), m.cpu()
	if err := f.update(ctx, count, atOnce); err != nil {
		return err
	}
	at.rate = float64(count) / time.Since(began).Seconds()
	events, err := s.awaitQuiet(ctx, mark)
	if err != nil {
		return err
	}
	at.cpu = (m.cpu() - before) / time.Duration(count)
	if err := <-profiled; err != nil {
		return err
	}
	at.requests = map[string]float64{}
	for _, event := range events {
		at.requests[event.Verb+" "+event.Target()] += 1 / float64(count)
	}
	before = m.cpu()
	if at.worked, err = m.atRest(ctx); err != nil {
		return err
	}
	at.idle = (m.cpu() - before) / (settling / time.Second)
	if err := f.update(ctx, alone, 1); err != nil {
		return err
	}
	slices.Sort(f.delays)
	at.delays = f.delays
	return m.saveMetrics(filepath.Join(s.options.dir, fmt.Sprintf("metrics-%d.txt", at.pods)))
}

// awaitQuiet waits until the manager sends no more requests, and returns the requests since
// a mark. Leases and watches are not counted: they depend on time alone.
func (s *server) awaitQuiet(ctx context.Context, mark audit.Mark) (audit.Events, error) {
	last, since := -1, time.Now()
	for began := time.Now(); time.Since(began) < quietPatience; {
		events, err := s.audit.Since(mark)
		if err != nil {
			return nil, err
		}
		events = events.Where(func(e audit.Event) bool { return e.Resource != "leases" && e.Verb != "watch" })
		if len(events) != last {
			last, since = len(events), time.Now()
		}
		if time.Since(since) >= quiet {
			return events, nil
		}
		if err := sleep(ctx, quiet/4); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the manager does not come to rest")
}

// atRest returns the memory of a manager that has nothing to do.
func (m *manager) atRest(ctx context.Context) (memory, error) {
	if err := sleep(ctx, settling); err != nil {
		return memory{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	if err != nil {
		return memory{}, fmt.Errorf("reading the memory of the manager: %w\n%s", err, m.Tail())
	}
	heap, err := m.metric("go_memstats_heap_inuse_bytes")
	if err != nil {
		return memory{}, err
	}
	return memory{resident: kibibytes(status, "VmRSS"), peak: kibibytes(status, "VmHWM"), heap: int64(heap)}, nil
}

// kibibytes reads a line such as "VmRSS:  1234 kB" as bytes.
func kibibytes(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		if rest, found := strings.CutPrefix(string(line), name+":"); found {
			count, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return count << 10
		}
	}
	return 0
}

// tick is the unit of processor times in /proc.
const tick = 10 * time.Millisecond

// cpu returns the processor time that the manager has used, 0 when it has ended.
func (m *manager) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID()))
	if err != nil {
		return 0
	}
	// The name before the last parenthesis may have spaces; utime and stime are the 12th and
	// 13th fields behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick
}

// readMetrics returns all metrics of the manager, as text.
func (m *manager) readMetrics() ([]byte, error) {
	text, err := get("http://" + m.metrics + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return text, nil
}

// get returns the body of a response; an error if the status is not 200.
func get(url string) ([]byte, error) {
	answer, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// saveMetrics writes all metrics to a file, which explains the figures.
func (m *manager) saveMetrics(path string) error {
	text, err := m.readMetrics()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing metrics: %w", err)
	}
	return nil
}

// saveProfiles writes profiles of the first seconds of the lifecycles to a folder: of the
// processor time, and of the bytes that were allocated. It does nothing if the manager serves
// no profiles.
func (m *manager) saveProfiles(dir string, pods int) error {
	if m.pprof == "" {
		return nil
	}
	var group errgroup.Group
	for file, name := range map[string]string{"cpu": "profile", "allocations": "allocs"} {
		group.Go(func() error {
			profile, err := get(fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%.0f", m.pprof, name, profiling.Seconds()))
			if err != nil {
				return fmt.Errorf("reading a profile: %w", err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", file, pods)), profile, 0o600); err != nil {
				return fmt.Errorf("writing a profile: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// metric returns the value of a metric without labels.
func (m *manager) metric(name string) (float64, error) {
	text, err := m.readMetrics()
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the manager has no metric %s", name)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
