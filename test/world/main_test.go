package world_test

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/test/world"
)

// garbage is the percentage by which the heap may grow before a collection, as GOGC has it: most objects live for one request.
const garbage = 400

var (
	seeds = flag.Int("seeds", 20, "how many schedules TestSchedules plays")
	from  = flag.Uint64("from", 1, "the first seed of TestSchedules")
	seed  = flag.Uint64("seed", 0, "the one seed that TestSchedules plays; its trace is printed")
	times = flag.Int("times", 1, "in how many processes the one seed is played: the order of maps and hashes belongs to a process")
	full  = flag.Bool("trace", false, "print the trace of every schedule, in full")
	plays = flag.Int("shrink", 40, "how many schedules may be played to shrink one that failed")

	parts = flag.Int("parts", 1, "into how many parts the stories are divided")
	part  = flag.Int("part", 0, "the part that TestStory plays")

	processes = flag.Int("processes", runtime.NumCPU(), "how many processes play at once")

	// fixture is made before any bubble.
	fixture *world.Fixture
)

func TestMain(m *testing.M) {
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Main(os.Stdin, os.Stdout))
	}
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	// The second handler sleeps by a time that the process shares: a bubble begins in the year 2000, and would wait until
	// the time of the process.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	var err error
	if fixture, err = world.NewFixture(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *full {
		fixture.TraceLines = math.MaxInt
	}
	os.Exit(m.Run())
}
