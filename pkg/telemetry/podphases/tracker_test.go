package podphases_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/telemetry/podphases"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/indexed"
	"github.com/podops-dev/podops/test/measured"
)

// fixture is a Tracker behind an index of pods.
type fixture struct {
	t        *testing.T
	registry *prometheus.Registry
	clock    *clocktesting.FakePassiveClock
	elected  chan struct{}
	*indexed.Pods
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, registry: prometheus.NewRegistry(), clock: clocktesting.NewFakePassiveClock(builders.Epoch), elected: make(chan struct{})}
	tracker, err := podphases.NewTracker(f.registry, f.clock)
	if err != nil {
		t.Fatal(err)
	}
	tracker.Lead(f.elected)
	index := podindex.NewIndex(func(string) {})
	index.Observe(tracker)
	f.Pods = indexed.NewPods(t, index)
	return f
}

// leading returns a fixture of a leader.
func leading(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	close(f.elected)
	return f
}

func (f *fixture) expect(metric string, want map[string]float64) {
	f.t.Helper()
	if diff := cmp.Diff(want, measured.Values(f.t, f.registry, metric)); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", metric, diff)
	}
}

// passes sets the clock to a time after the epoch.
func (f *fixture) passes(d time.Duration) { f.clock.SetTime(builders.Epoch.Add(d)) }

const (
	pods    = "podops_pods"
	oldest  = "podops_pods_oldest_seconds"
	pending = "podops_deletes_pending"
	held    = "podops_deletes_held_total"
	ended   = "podops_deletes_ended_total"
	phases  = "podops_pod_phase_duration_seconds"
)

func available(name string) *builders.PodBuilder { return builders.MakePod(name).Available() }

// waits returns an available pod that waits in PreCheck since a time after the epoch.
func waits(name, id string, since time.Duration) *builders.PodBuilder {
	return available(name).Waiting(id, appsv1alpha1.DeleteOperationType, builders.Epoch.Add(since))
}

// stamped returns a pod whose lifecycle labels of one prefix have a time after the epoch.
func stamped(pod *builders.PodBuilder, prefix, id string, since time.Duration) *builders.PodBuilder {
	return pod.Label(prefix+"/"+id, builders.Stamp(builders.Epoch.Add(since)))
}

func TestPodsAreCountedByPhaseAndNamespace(t *testing.T) {
	f := leading(t)
	f.Put(available("a"), available("b"), waits("c", "up", 0), available("d").Namespace("shop"))
	f.expect(pods, map[string]float64{
		"namespace=default,phase=Available": 2, "namespace=default,phase=PreCheck": 1, "namespace=shop,phase=Available": 1,
	})
	f.Put(builders.MakePod("c").Allowed("up", "upgrade"))
	f.Remove(available("d").Namespace("shop"))
	f.expect(pods, map[string]float64{"namespace=default,phase=Available": 2, "namespace=default,phase=Operating": 1})
}

func TestTheOldestPodOfAPhase(t *testing.T) {
	f := leading(t)
	f.Put(waits("young", "up", 50*time.Second), waits("old", "up", 10*time.Second), available("served"))
	f.passes(time.Minute)
	f.expect(oldest, map[string]float64{"namespace=default,phase=PreCheck": 50})
	f.Put(available("old"))
	f.expect(oldest, map[string]float64{"namespace=default,phase=PreCheck": 10})
	f.Remove(waits("young", "up", 50*time.Second))
	f.expect(oldest, nil)
}

func TestAPhaseIsMeasuredWhenItEnds(t *testing.T) {
	f := leading(t)
	f.Put(waits("a", "up", 0))
	f.Put(waits("a", "up", 0).Annotation("note", "x")) // which ends nothing
	f.Put(stamped(builders.MakePod("a").Preparing("up", "upgrade"), appsv1alpha1.PrepareLabelPrefix, "up", 7*time.Second))
	if got := measured.Sums(t, f.registry, phases)["phase=PreCheck"]; got != 7 {
		t.Errorf("PreCheck took %v s, want those to the begin of the next phase, 7", got)
	}
	f.passes(20 * time.Second)
	f.Put(available("a")) // available since the epoch: the phase ends now
	if got := measured.Sums(t, f.registry, phases)["phase=Preparing"]; got != 13 {
		t.Errorf("Preparing took %v s, want 13", got)
	}
	f.expect(phases, map[string]float64{
		"phase=PreCheck": 1, "phase=Preparing": 1, "phase=Operating": 0, "phase=PostCheck": 0, "phase=Completing": 0, "phase=Terminating": 0,
	})
}

func TestHeldDeletes(t *testing.T) {
	const id = appsv1alpha1.PodDeleteID
	for name, test := range map[string]struct {
		end  func(*fixture)
		want map[string]float64
	}{
		"it is undone": {
			func(f *fixture) { f.Put(available("a")) }, map[string]float64{"outcome=Removed": 0, "outcome=Undone": 1},
		},
		"the pod is deleted": {
			func(f *fixture) {
				f.Put(waits("a", id, 0).Terminating(builders.Epoch))
				f.Remove(waits("a", id, 0).Terminating(builders.Epoch))
			}, map[string]float64{"outcome=Removed": 1, "outcome=Undone": 0},
		},
		"the pod vanishes": {
			func(f *fixture) { f.Remove(waits("a", id, 0)) }, map[string]float64{"outcome=Removed": 1, "outcome=Undone": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := leading(t)
			f.Put(available("a"))
			f.expect(pending, nil)
			f.Put(waits("a", id, 0))
			f.Put(waits("a", id, 0).Annotation("note", "x"))
			f.expect(pending, map[string]float64{"namespace=default": 1})
			f.expect(held, map[string]float64{"": 1})
			test.end(f)
			f.expect(pending, nil)
			f.expect(held, map[string]float64{"": 1})
			f.expect(ended, test.want)
		})
	}
}

// TestALeaderTakesOver shows that a follower reports no pods and counts nothing, and that a leader has the numbers
// of pods that it has seen before: their times are on the pods, and holds that began before are not counted again.
func TestALeaderTakesOver(t *testing.T) {
	f := newFixture(t)
	f.Put(available("a"))
	f.Put(waits("a", appsv1alpha1.PodDeleteID, time.Second))
	f.passes(time.Minute)
	f.expect(pods, nil)
	f.expect(oldest, nil)
	f.expect(held, map[string]float64{"": 0})
	close(f.elected)
	f.expect(pods, map[string]float64{"namespace=default,phase=PreCheck": 1})
	f.expect(oldest, map[string]float64{"namespace=default,phase=PreCheck": 59})
	f.expect(pending, map[string]float64{"namespace=default": 1})
	f.expect(held, map[string]float64{"": 0})
	f.Put(available("a"))
	f.expect(ended, map[string]float64{"outcome=Removed": 0, "outcome=Undone": 1})
	if got := measured.Sums(t, f.registry, phases)["phase=PreCheck"]; got != 59 {
		t.Errorf("PreCheck took %v s, want 59", got)
	}
}

// TestARestartLosesNoTime shows that a manager which lists the pods has the whole times of their phases, and the
// deletes that are held.
func TestARestartLosesNoTime(t *testing.T) {
	f := leading(t)
	f.passes(time.Hour)
	f.List(waits("a", appsv1alpha1.PodDeleteID, time.Minute), available("b"))
	f.expect(pods, map[string]float64{"namespace=default,phase=PreCheck": 1, "namespace=default,phase=Available": 1})
	f.expect(oldest, map[string]float64{"namespace=default,phase=PreCheck": 59 * 60})
	f.expect(pending, map[string]float64{"namespace=default": 1})
	f.Put(available("a"))
	if got := measured.Sums(t, f.registry, phases)["phase=PreCheck"]; got != 59*60 {
		t.Errorf("PreCheck took %v s, want %v", got, 59*60)
	}
	f.expect(ended, map[string]float64{"outcome=Removed": 0, "outcome=Undone": 1})
}

// TestARelistMeasuresNothingTwice shows that pods that are listed again, as after a lost watch, count as before.
func TestARelistMeasuresNothingTwice(t *testing.T) {
	f := leading(t)
	f.Put(available("gone"), waits("a", appsv1alpha1.PodDeleteID, 0))
	f.List(waits("a", appsv1alpha1.PodDeleteID, 0))
	f.expect(pods, map[string]float64{"namespace=default,phase=PreCheck": 1})
	f.expect(pending, map[string]float64{"namespace=default": 1})
	f.expect(held, map[string]float64{"": 0}) // its begin was not seen
	f.expect(ended, map[string]float64{"outcome=Removed": 0, "outcome=Undone": 0})
}

// TestNamespacesBeyondTheBoundShareASeries shows that their pods are added up, that the oldest of them counts,
// and that a namespace without pods makes room.
func TestNamespacesBeyondTheBoundShareASeries(t *testing.T) {
	f := leading(t)
	f.passes(time.Hour)
	name := func(i int) string { return fmt.Sprintf("ns-%04d", i) }
	for i := range metricseries.MaxNamespaces + 2 {
		f.Put(waits("a", "up", time.Duration(i)*time.Second).Namespace(name(i)))
	}
	count := func() (series int, other float64) {
		values := measured.Values(t, f.registry, pods)
		return len(values), values["namespace=other,phase=PreCheck"]
	}
	if series, other := count(); series != metricseries.MaxNamespaces+1 || other != 2 {
		t.Errorf("%d series, and %v pods of other namespaces, want %d and 2", series, other, metricseries.MaxNamespaces+1)
	}
	if got, want := measured.Values(t, f.registry, oldest)["namespace=other,phase=PreCheck"], 3600-float64(metricseries.MaxNamespaces); got != want {
		t.Errorf("the oldest pod of the other namespaces waits for %v s, want %v", got, want)
	}
	f.Remove(waits("a", "up", 0).Namespace(name(0)))
	if series, other := count(); series != metricseries.MaxNamespaces+1 || other != 1 {
		t.Errorf("%d series, and %v pods of other namespaces once there is room, want %d and 1", series, other, metricseries.MaxNamespaces+1)
	}
}

// BenchmarkChanges measures changes of a pod beside 10,000 others, in the index alone and with a Tracker.
func BenchmarkChanges(b *testing.B) {
	states := []*corev1.Pod{
		available("p-0").Obj(), waits("p-0", "up", 0).Obj(), builders.MakePod("p-0").Preparing("up", "upgrade").Obj(),
		builders.MakePod("p-0").Allowed("up", "upgrade").Obj(), builders.MakePod("p-0").Finished("up", "upgrade", builders.Epoch).Obj(),
	}
	for _, observed := range []bool{false, true} {
		b.Run(fmt.Sprintf("observed=%t", observed), func(b *testing.B) {
			tracker, err := podphases.NewTracker(prometheus.NewRegistry(), clocktesting.NewFakePassiveClock(builders.Epoch))
			if err != nil {
				b.Fatal(err)
			}
			elected := make(chan struct{})
			close(elected)
			tracker.Lead(elected)
			index := podindex.NewIndex(func(string) {})
			if observed {
				index.Observe(tracker)
			}
			store := index.PodStore()
			for i := range 10_000 {
				if err := store.Update(available(fmt.Sprint("p-", i)).Obj()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := store.Update(states[i%len(states)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScrape measures a scrape of 10,000 pods of 100 namespaces, a tenth of which wait.
func BenchmarkScrape(b *testing.B) {
	registry := prometheus.NewRegistry()
	tracker, err := podphases.NewTracker(registry, clocktesting.NewFakePassiveClock(builders.Epoch))
	if err != nil {
		b.Fatal(err)
	}
	elected := make(chan struct{})
	close(elected)
	tracker.Lead(elected)
	index := podindex.NewIndex(func(string) {})
	index.Observe(tracker)
	for i := range 10_000 {
		pod := available(fmt.Sprint("p-", i))
		if i%10 == 0 {
			pod = waits(fmt.Sprint("p-", i), "up", 0)
		}
		if err := index.PodStore().Update(pod.Namespace(fmt.Sprint("ns-", i%100/10+i/1000*10)).Obj()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
