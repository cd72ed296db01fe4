package budgetuse_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/telemetry/budgetuse"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/indexed"
	"github.com/podops-dev/podops/test/measured"
)

// fixture is the Metrics behind an index of pods and PodDisruptionBudgets.
type fixture struct {
	t        *testing.T
	registry *prometheus.Registry
	clock    *clocktesting.FakePassiveClock
	index    *podindex.Index
	elected  chan struct{}
	*indexed.Pods
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, registry: prometheus.NewRegistry(), clock: clocktesting.NewFakePassiveClock(builders.Epoch), elected: make(chan struct{})}
	metrics, err := budgetuse.NewMetrics(f.registry, f.clock)
	if err != nil {
		t.Fatal(err)
	}
	metrics.Lead(f.elected)
	f.index = podindex.NewIndex(func(string) {})
	f.index.ObserveBudgets(metrics)
	f.Pods = indexed.NewPods(t, f.index)
	return f
}

// leading returns a fixture of a leader.
func leading(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	close(f.elected)
	return f
}

func (f *fixture) values() map[string]float64 {
	f.t.Helper()
	return measured.Values(f.t, f.registry, "podops_poddisruptionbudget_pods")
}

// expect compares the numbers of the PodDisruptionBudget "web".
func (f *fixture) expect(when string, allowed, inUse, left float64) {
	f.t.Helper()
	const of = "namespace=default,poddisruptionbudget=web,state="
	if diff := cmp.Diff(map[string]float64{of + "allowed": allowed, of + "in_use": inUse, of + "left": left}, f.values()); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func (f *fixture) expectNone(when string) {
	f.t.Helper()
	if got := f.values(); got != nil {
		f.t.Errorf("%s there are series: %v", when, got)
	}
}

// web returns a PodDisruptionBudget of all pods with a status.
func web(desired, healthy, expected int) podindex.DisruptionBudget {
	return podindex.DisruptionBudget{
		Namespace: "default", Name: "web", Selector: labels.Everything(), Desired: desired, Healthy: healthy, Expected: expected,
	}
}

func available(name string) *builders.PodBuilder { return builders.MakePod(name).Available() }

func TestAPermitUsesABudget(t *testing.T) {
	f := leading(t)
	f.index.SetDisruptionBudget(web(2, 4, 4))
	f.expectNone("without controlled pods")
	f.Put(available("a"), available("b"), available("c"), available("d"))
	f.expect("at rest", 2, 0, 2)
	f.Put(available("a").Waiting("up", "upgrade", builders.Epoch))
	f.expect("a pod waits", 2, 0, 2)
	f.Put(available("a").Preparing("up", "upgrade"))
	f.expect("it has its permit, and is Ready", 2, 1, 1)
	f.Put(builders.MakePod("a").Allowed("up", "upgrade"))
	f.index.SetDisruptionBudget(web(2, 3, 4))
	f.expect("it is operated on, and unready", 2, 1, 1)
	f.Put(builders.MakePod("b"))
	f.expect("another pod is unready by itself", 2, 1, 0)
	f.Put(builders.MakePod("c"))
	f.expect("too few pods are healthy", 2, 1, 0)
	f.Put(available("a"), available("b"), available("c"))
	f.expect("all serve again", 2, 0, 2)
}

// TestTheStatusOfAPodDisruptionBudget shows that a PodDisruptionBudget permits nothing while its status is unknown, and
// nothing more than its numbers.
func TestTheStatusOfAPodDisruptionBudget(t *testing.T) {
	f := leading(t)
	f.Put(available("a"), available("b"))
	f.index.SetDisruptionBudget(web(2, 2, 2))
	f.expect("maxUnavailable 0", 0, 0, 0)
	f.index.SetDisruptionBudget(web(1, 2, 2))
	f.expect("maxUnavailable 1", 1, 0, 1)
	stale := web(1, 2, 2)
	stale.Unknown = "the status is of an older generation"
	f.index.SetDisruptionBudget(stale)
	f.expect("its status is old", 0, 0, 0)
}

// TestPodsWithoutTheControlLabel count for the free slots as they do for permits: once the status has counted them
// for evaluation.SettledFor.
func TestPodsWithoutTheControlLabel(t *testing.T) {
	f := leading(t)
	f.Put(available("a"))
	f.index.SetDisruptionBudget(web(2, 3, 3))
	f.expect("at once", 1, 0, 0)
	f.clock.SetTime(builders.Epoch.Add(evaluation.SettledFor - time.Second))
	f.expect("before it has settled", 1, 0, 0)
	f.clock.SetTime(builders.Epoch.Add(evaluation.SettledFor))
	f.expect("settled", 1, 0, 1)
	f.index.SetDisruptionBudget(web(2, 2, 3))
	f.expect("one of them is unready", 1, 0, 0)
}

func TestSeriesEnd(t *testing.T) {
	f := leading(t)
	f.index.SetDisruptionBudget(web(0, 1, 1))
	f.Put(available("a"))
	f.expect("with a pod", 1, 0, 1)
	f.Remove(available("a"))
	f.expectNone("after its last controlled pod")
	f.Put(available("a"))
	f.expect("with a new pod", 1, 0, 1)
	f.index.RetireDisruptionBudget(types.NamespacedName{Namespace: "default", Name: "web"}, builders.Epoch)
	f.expectNone("after it was deleted")
}

func TestOnlyTheLeaderHasSeries(t *testing.T) {
	f := newFixture(t)
	f.index.SetDisruptionBudget(web(0, 1, 1))
	f.Put(available("a"))
	f.expectNone("on a follower")
	close(f.elected)
	f.expect("once it leads", 1, 0, 1)
}

// TestSeriesAreBounded shows that a namespace cannot have more than its share, and that its places become free.
func TestSeriesAreBounded(t *testing.T) {
	const bound, states = 100, 3
	f := leading(t)
	f.Put(available("a"))
	named := func(i int) podindex.DisruptionBudget {
		b := web(0, 1, 1)
		b.Name = fmt.Sprintf("web-%d", i)
		return b
	}
	for i := range bound + 20 {
		f.index.SetDisruptionBudget(named(i))
	}
	if got := len(f.values()); got != states*bound {
		t.Errorf("%d series, want %d", got, states*bound)
	}
	f.index.RetireDisruptionBudget(types.NamespacedName{Namespace: "default", Name: "web-0"}, builders.Epoch)
	f.Put(builders.MakePod("a")) // which every PodDisruptionBudget counts
	if got := len(f.values()); got != states*bound {
		t.Errorf("%d series after a place became free, want %d", got, states*bound)
	}
}
