package eventqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/test/builders"
)

// server is an API server that stores events. Calls fail with the first of its errors.
type server struct {
	events map[string]*corev1.Event
	calls  int
	errs   []error
}

func (s *server) fail() error {
	s.calls++
	if len(s.errs) == 0 {
		return nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

func (s *server) Create(_ context.Context, event *corev1.Event) error {
	if err := s.fail(); err != nil {
		return err
	}
	if s.events[event.Name] != nil {
		return apierrors.NewAlreadyExists(corev1.Resource("events"), event.Name)
	}
	s.events[event.Name] = event
	return nil
}

func (s *server) Patch(_ context.Context, _, name string, patch []byte) error {
	if err := s.fail(); err != nil {
		return err
	}
	event, ok := s.events[name]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("events"), name)
	}
	return json.Unmarshal(patch, event)
}

// fixture is a Queue before a server, on a clock that the test steps.
type fixture struct {
	queue  *Queue
	server *server
	clock  *testingclock.FakeClock
}

func newFixture(t *testing.T, l limits) *fixture {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{server: &server{events: map[string]*corev1.Event{}}, clock: testingclock.NewFakeClock(builders.Epoch)}
	f.queue = newQueue(scheme.Scheme, f.server, f.clock, metrics, l)
	return f
}

var roomy = limits{entries: 100, bytes: 1 << 20, namespaceEntries: 50, rate: 10, burst: 20, totalRate: 100, totalBurst: 100}

func (f *fixture) record(pod *corev1.Pod, reason, note string) {
	f.queue.Recorder("podops").Eventf(pod, nil, corev1.EventTypeNormal, reason, "Act", "%s", note)
}

// send advances the clock and sends the events that are due.
func (f *fixture) send(t *testing.T, after time.Duration) {
	t.Helper()
	f.clock.Step(after)
	for {
		if _, sent := f.queue.sendNext(t.Context()); !sent {
			return
		}
	}
}

// stored returns the events of the server: reason, count and message.
func (f *fixture) stored() map[string]int {
	stored := map[string]int{}
	for _, event := range f.server.events {
		stored[fmt.Sprintf("%s x%d: %s", event.Reason, event.Count, event.Message)]++
	}
	return stored
}

func (f *fixture) drops(reason string) float64 {
	var metric dto.Metric
	if err := f.queue.metrics.drops.WithLabelValues(reason).Write(&metric); err != nil {
		panic(err)
	}
	return metric.GetCounter().GetValue()
}

func expectStored(t *testing.T, what string, f *fixture, calls int, want ...string) {
	t.Helper()
	events := map[string]int{}
	for _, event := range want {
		events[event]++
	}
	if diff := cmp.Diff(events, f.stored()); diff != "" {
		t.Errorf("%s: events differ (-want +got):\n%s", what, diff)
	}
	if f.server.calls != calls {
		t.Errorf("%s: %d requests, want %d", what, f.server.calls, calls)
	}
	f.server.calls = 0
}

// TestARepeatedEventIsASeries shows that it is one object with the newest message, a count, and the
// time by which kubectl sorts, with a request at most every ten seconds.
func TestARepeatedEventIsASeries(t *testing.T) {
	f := newFixture(t, roomy)
	pod := builders.MakePod("web-0").Obj()
	f.record(pod, "Withheld", "2 of 4")
	f.record(pod, "Permitted", "go")
	f.send(t, time.Second)
	expectStored(t, "two reasons", f, 2, "Withheld x1: 2 of 4", "Permitted x1: go")

	for range 100 {
		f.record(pod, "Withheld", "3 of 4")
	}
	f.send(t, time.Second)
	expectStored(t, "too soon", f, 0, "Withheld x1: 2 of 4", "Permitted x1: go")
	f.send(t, seriesInterval)
	expectStored(t, "a series", f, 1, "Withheld x101: 3 of 4", "Permitted x1: go")
	for _, event := range f.server.events {
		if event.Reason == "Withheld" && (!event.FirstTimestamp.Time.Equal(builders.Epoch) || !event.LastTimestamp.Time.Equal(builders.Epoch.Add(time.Second))) {
			t.Errorf("the series goes from %s to %s", event.FirstTimestamp, event.LastTimestamp)
		}
	}

	clear(f.server.events)
	f.record(pod, "Withheld", "4 of 4")
	f.send(t, seriesInterval)
	expectStored(t, "the event has expired", f, 2, "Withheld x1: 4 of 4")
	f.clock.Step(seriesWindow)
	f.record(pod, "Withheld", "5 of 4")
	f.send(t, time.Second)
	expectStored(t, "the series is over", f, 1, "Withheld x1: 4 of 4", "Withheld x1: 5 of 4")
	renamed := pod.DeepCopy()
	renamed.UID = "another"
	f.record(renamed, "Withheld", "5 of 4")
	f.send(t, time.Second)
	expectStored(t, "another pod of the name", f, 1, "Withheld x1: 4 of 4", "Withheld x1: 5 of 4", "Withheld x1: 5 of 4")
}

// TestFailures shows that events that the API server rejects are dropped, that other failures are
// retried, and that nothing more is sent to a terminating namespace.
func TestFailures(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("events"), "e", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	down := errors.New("no route")
	for name, tc := range map[string]struct {
		errs    []error
		dropped string
		count   float64
		calls   int
		stored  int
	}{
		"down for a moment":        {errs: []error{down, down}, calls: 5, stored: 3},
		"down for long":            {errs: []error{down, down, down, down, down, down, down, down, down}, calls: 9, dropped: dropFailed, count: 3},
		"refused":                  {errs: []error{apierrors.NewBadRequest("no")}, calls: 3, dropped: dropRefused, count: 1, stored: 2},
		"busy":                     {errs: []error{apierrors.NewTooManyRequests("busy", 1)}, calls: 4, stored: 3},
		"the namespace is deleted": {errs: []error{apierrors.NewNotFound(corev1.Resource("namespaces"), "default")}, calls: 1, dropped: dropNamespaceGone, count: 3},
		"the namespace terminates": {errs: []error{terminating}, calls: 1, dropped: dropNamespaceGone, count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, roomy)
			f.server.errs = tc.errs
			for i := range 3 {
				f.record(builders.MakePod(fmt.Sprintf("web-%d", i)).Obj(), "Withheld", "no")
			}
			for range 5 {
				f.send(t, 2*retryAfter)
			}
			if f.server.calls != tc.calls || len(f.server.events) != tc.stored {
				t.Errorf("%d requests, %d events, want %d and %d", f.server.calls, len(f.server.events), tc.calls, tc.stored)
			}
			for _, reason := range []string{dropFull, dropFailed, dropRefused, dropNamespaceGone} {
				want := 0.0
				if reason == tc.dropped {
					want = tc.count
				}
				if got := f.drops(reason); got != want {
					t.Errorf("%v dropped as %s, want %v", got, reason, want)
				}
			}
		})
	}
}

// TestAFloodIsDroppedAndCounted records 96,000 events, as 15 PodTransitionRules of 64 rules and 100
// pods would, one for each.
func TestAFloodIsDroppedAndCounted(t *testing.T) {
	l := roomy
	l.burst = l.namespaceEntries
	f := newFixture(t, l)
	const flood = 96000
	for i := range flood {
		f.record(builders.MakePod(fmt.Sprintf("web-%d", i)).Obj(), "Withheld", strings.Repeat("x", 2*maxNoteBytes))
	}
	f.send(t, time.Second)
	if got := len(f.server.events); got != l.namespaceEntries {
		t.Errorf("%d events are stored, want %d", got, l.namespaceEntries)
	}
	if got := f.drops(dropFull); got != flood-float64(l.namespaceEntries) {
		t.Errorf("%v events count as dropped", got)
	}
	for _, event := range f.server.events {
		if len(event.Message) != maxNoteBytes {
			t.Errorf("a message of %d bytes, want %d", len(event.Message), maxNoteBytes)
			break
		}
	}
}

// TestInvalidEventsAreCounted shows that they are dropped, and nothing else is affected.
func TestInvalidEventsAreCounted(t *testing.T) {
	f := newFixture(t, roomy)
	f.queue.Recorder("podops").Eventf(builders.MakePod("web-0").Obj(), nil, "Dreadful", "A", "B", "c")
	f.queue.Recorder("podops").Eventf(nil, nil, corev1.EventTypeNormal, "A", "B", "c")
	if got := f.drops(dropInvalid); got != 2 {
		t.Errorf("%v events count as invalid, want 2", got)
	}
}

func TestEventsCanBeSwitchedOff(t *testing.T) {
	f := newFixture(t, limits{})
	f.record(builders.MakePod("web-0").Obj(), "Withheld", "no")
	f.send(t, time.Hour)
	expectStored(t, "off", f, 0)
}

// TestTheWorker shows that it sends events that are recorded while it waits, and events that
// may still be sent when it is stopped; the others count as dropped.
func TestTheWorker(t *testing.T) {
	f := newFixture(t, limits{entries: 100, bytes: 1 << 20, namespaceEntries: 50, rate: 0.001, burst: 2, totalRate: 100, totalBurst: 100})
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 5 {
		f.record(builders.MakePod(fmt.Sprintf("web-%d", i)).Obj(), "Withheld", "no")
	}
	cancel()
	if err := f.queue.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(f.server.events); got != 2 {
		t.Errorf("%d events are sent, want 2", got)
	}
	if got := f.drops(dropStopped); got != 3 {
		t.Errorf("%v count as dropped, want 3", got)
	}
}

// TestSeriesAreSharedByNamespace shows that the events of one namespace never turn a repetition in another
// one into a new event.
func TestSeriesAreSharedByNamespace(t *testing.T) {
	f := newFixture(t, roomy)
	quiet := builders.MakePod("web-0").Namespace("quiet").Obj()
	f.record(quiet, "Withheld", "waits")
	f.send(t, 0)
	expectStored(t, "first", f, 1, "Withheld x1: waits")
	for i := range seriesBytes / fairshare.EntryBytes {
		s := series{namespace: "loud", kind: "Pod", name: fmt.Sprint(i), reason: "Withheld"}
		f.queue.sent.Add(s.namespace, s, lastSent{at: f.clock.Now()}, s.bytes())
	}
	f.record(quiet, "Withheld", "still waits")
	f.send(t, seriesInterval)
	expectStored(t, "repeated", f, 1, "Withheld x2: still waits")
}
