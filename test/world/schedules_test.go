package world_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/world"
)

// shortSeeds is the number of schedules that are part of make test-world-share.
const shortSeeds = 4

// chunk is the number of schedules that a process plays: a process that is stuck, or ends, takes no more with it.
const chunk uint64 = 50

// TestSchedules plays the schedules of many seeds. A seed that fails is shrunk and printed; -seed plays it again.
func TestSchedules(t *testing.T) {
	switch {
	case *seed != 0 && *times > 1:
		repeat(t, *seed, *times)
	case *seed != 0:
		s := world.Generate(*seed)
		verdict := play(t, s)
		t.Log(describe(s, verdict))
		if failing := verdict.Laws(); len(failing) > 0 {
			t.Errorf("laws: %v", failing)
		}
	case *processes > 1:
		playInProcesses(t, *from, count())
	default:
		playSeeds(t, *from, count())
	}
}

// count returns how many schedules are played.
func count() int {
	if testing.Short() {
		return min(*seeds, shortSeeds)
	}
	return *seeds
}

// playSeeds plays a number of schedules, one after the other.
func playSeeds(t *testing.T, first uint64, count int) {
	t.Helper()
	began, used := time.Now(), processorTime()
	for n := first; n < first+uint64(count); n++ {
		s := world.Generate(n)
		verdict := play(t, s)
		if *full {
			t.Log(describe(s, verdict))
		}
		failing := verdict.Laws()
		if len(failing) == 0 {
			continue
		}
		t.Errorf("seed %d: %v; go test -C test/world -run Schedules -seed %d", n, failing, n)
		law, smallest := failing[0], verdict
		s = world.Shrink(s, func(candidate world.Schedule) bool {
			again := play(t, candidate)
			if again.Broke(law) {
				smallest = again
			}
			return again.Broke(law)
		}, *plays)
		t.Log("shrunk:\n" + describe(s, smallest))
	}
	t.Log(rate(count, time.Since(began), processorTime()-used))
}

// rate returns how many schedules were played, and how fast.
func rate(count int, took, used time.Duration) string {
	return fmt.Sprintf("%d schedules in %s, %.2f for each second of a processor", count, took.Truncate(time.Second), float64(count)/used.Seconds())
}

// playInProcesses plays schedules in several processes of this program at once, since the names that Kubernetes generates belong
// to a process: a seed would not reproduce beside others.
func playInProcesses(t *testing.T, first uint64, count int) {
	t.Helper()
	began, end := time.Now(), first+uint64(count)
	chunk := min(chunk, uint64((count+*processes-1) / *processes))
	var used, played atomic.Int64
	chunks := make(chan uint64)
	var running sync.WaitGroup
	for range *processes {
		running.Go(func() {
			for from := range chunks {
				next := min(from+chunk, end)
				out, cost, err := inProcess(t, "-test.run=^TestSchedules$",
					fmt.Sprintf("-from=%d", from), fmt.Sprintf("-seeds=%d", next-from), fmt.Sprintf("-shrink=%d", *plays))
				used.Add(int64(cost))
				if err != nil {
					t.Errorf("seeds %d to %d: %v\n%s", from, next-1, err, out)
				}
				t.Logf("%d of %d schedules after %s", played.Add(int64(next-from)), count, time.Since(began).Truncate(time.Second))
			}
		})
	}
	for from := first; from < end; from += chunk {
		chunks <- from
	}
	close(chunks)
	running.Wait()
	t.Log(rate(count, time.Since(began), time.Duration(used.Load())))
}

// repeat plays one seed in a number of processes, and prints the first that fails.
func repeat(t *testing.T, seed uint64, times int) {
	t.Helper()
	var failed atomic.Int64
	left := make(chan struct{}, times)
	for range times {
		left <- struct{}{}
	}
	close(left)
	var running sync.WaitGroup
	for range *processes {
		running.Go(func() {
			for range left {
				if out, _, err := inProcess(t, "-test.run=^TestSchedules$", fmt.Sprintf("-seed=%d", seed), "-trace"); err != nil && failed.Add(1) == 1 {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
	running.Wait()
	t.Logf("seed %d failed in %d of %d processes", seed, failed.Load(), times)
}

// inProcess runs tests of this program in a process of its own. It returns what they print, and the processor time that they use.
func inProcess(t *testing.T, args ...string) (out []byte, used time.Duration, err error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	command := exec.CommandContext(t.Context(), program, append(args, "-test.timeout=0", "-processes=1")...)
	command.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400") // a schedule ends before its garbage matters
	out, err = command.CombinedOutput()
	if state := command.ProcessState; state != nil {
		used = state.UserTime() + state.SystemTime()
	}
	return out, used, err
}
