package lanes_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/lanes"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	places = 2
	burst  = 50 * time.Millisecond
	memory = time.Minute
)

func newLanes() *lanes.Lanes {
	return lanes.New(lanes.Options{Places: places, Rate: 0.5, Burst: burst, Memory: memory})
}

// machine runs rounds of a few namespaces in any order, as a controller does: one at a time in each
// namespace, and another round whenever Leave returns it.
type machine struct {
	t        *rapid.T
	lanes    *lanes.Lanes
	now      time.Time
	running  map[string]lanes.Lane
	reserved map[string]bool
	parked   map[string]bool
	spent    map[string]time.Time // when the namespace last used CPU time
}

func (m *machine) someone(kind string, from map[string]lanes.Lane) (string, bool) {
	var names []string
	for i := range 6 {
		name := fmt.Sprint("ns-", i)
		_, is := from[name]
		if kind == "running" && is || kind == "idle" && !is {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return rapid.SampledFrom(names).Draw(m.t, kind), true
}

func (m *machine) enter(*rapid.T) {
	name, ok := m.someone("idle", m.running)
	if !ok {
		return
	}
	lane, admitted := m.lanes.Enter(name, m.now)
	spent, known := m.spent[name]
	switch {
	case m.reserved[name] && (!admitted || lane != lanes.Slow):
		m.t.Fatalf("%s has a reserved place and did not get it", name)
	// A parked namespace waits for its turn, even when its debt ends meanwhile.
	case !admitted && !m.parked[name] && (!known || m.now.Sub(spent) > memory+10*burst):
		m.t.Fatalf("%s is parked although it has been idle for long", name)
	}
	delete(m.reserved, name)
	delete(m.parked, name)
	if !admitted {
		m.parked[name] = true
		return
	}
	m.running[name] = lane
}

func (m *machine) goOn(*rapid.T) {
	name, ok := m.someone("running", m.running)
	if !ok {
		return
	}
	used := time.Duration(rapid.IntRange(1, 200).Draw(m.t, "used")) * time.Millisecond
	m.spent[name] = m.now
	lane, may := m.lanes.GoOn(name, used, m.now)
	if m.running[name] == lanes.Slow && (lane != lanes.Slow || !may) {
		m.t.Fatalf("%s lost its place", name)
	}
	m.running[name] = lane
}

func (m *machine) leave(*rapid.T) {
	name, ok := m.someone("running", m.running)
	if !ok {
		return
	}
	delete(m.running, name)
	for _, next := range m.lanes.Leave(name, 0, m.now) {
		if !m.parked[next] {
			m.t.Fatalf("%s must be queued and does not wait", next)
		}
		delete(m.parked, next)
		m.reserved[next] = true
	}
}

func (m *machine) wait(*rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 30000).Draw(m.t, "wait")) * time.Millisecond)
}

func (m *machine) check(*rapid.T) {
	taken := len(m.reserved)
	for _, lane := range m.running {
		if lane == lanes.Slow {
			taken++
		}
	}
	if taken > places {
		m.t.Fatalf("%d places are taken, there are %d", taken, places)
	}
	if taken < places && len(m.parked) > 0 {
		m.t.Fatalf("%v wait although there is a place", m.parked)
	}
	if m.lanes.Parked() != len(m.parked) {
		m.t.Fatalf("%d are parked, want %d", m.lanes.Parked(), len(m.parked))
	}
}

// TestLanes shows for any order of rounds: the slow lane has no more rounds than places, no
// namespace waits while a place is free, reserved places are kept, and debts expire.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			t: t, lanes: newLanes(), now: epoch, running: map[string]lanes.Lane{},
			reserved: map[string]bool{}, parked: map[string]bool{}, spent: map[string]time.Time{},
		}
		t.Repeat(map[string]func(*rapid.T){"enter": m.enter, "goOn": m.goOn, "leave": m.leave, "wait": m.wait, "": m.check})
	})
}

// TestSmallestDebtFirst shows which namespace gets the next place.
func TestSmallestDebtFirst(t *testing.T) {
	l := newLanes()
	for name, used := range map[string]time.Duration{"much": 900 * time.Millisecond, "some": 100 * time.Millisecond} {
		l.Enter(name, epoch)
		l.Leave(name, used, epoch)
	}
	for _, name := range []string{"first", "second"} {
		l.Enter(name, epoch)
		if lane, ok := l.GoOn(name, time.Second, epoch); lane != lanes.Slow || !ok {
			t.Fatalf("%s goes on %v in lane %v", name, ok, lane)
		}
	}
	for _, name := range []string{"much", "some"} {
		if _, ok := l.Enter(name, epoch); ok {
			t.Fatalf("%s has a place", name)
		}
	}
	if got := l.Leave("first", 0, epoch); len(got) != 1 || got[0] != "some" {
		t.Errorf("the first place goes to %v", got)
	}
	if got := l.Leave("second", 0, epoch); len(got) != 1 || got[0] != "much" {
		t.Errorf("the second place goes to %v", got)
	}
}

// TestDebtEndsWhileParked shows that a parked namespace waits for its turn, even when its debt has
// ended, and is in the fast lane after it.
func TestDebtEndsWhileParked(t *testing.T) {
	l := newLanes()
	enter := func(name string, now time.Time) (lanes.Lane, bool) {
		lane, ok := l.Enter(name, now)
		if ok {
			l.GoOn(name, time.Second, now)
		}
		return lane, ok
	}
	enter("late", epoch)
	for i := range places {
		enter(fmt.Sprint("slow-", i), epoch)
	}
	l.Leave("late", 0, epoch)
	for i := range places { // the places were taken before the round of late left
		if lane, ok := l.GoOn(fmt.Sprint("slow-", i), 0, epoch); !ok {
			t.Fatalf("slow-%d is in lane %v, and may not go on", i, lane)
		}
	}
	if _, ok := l.Enter("late", epoch); ok {
		t.Fatal("no place is free")
	}
	paid := epoch.Add(2 * memory)
	if _, ok := l.Enter("late", paid); ok {
		t.Error("a parked namespace does not wait for its turn")
	}
	if got := l.Leave("slow-0", 0, paid); len(got) != 1 || got[0] != "late" {
		t.Errorf("the place goes to %v", got)
	}
	if lane, ok := l.Enter("late", paid); lane != lanes.Slow || !ok {
		t.Errorf("its turn is in lane %v: %v", lane, ok)
	}
	l.Leave("late", 0, paid)
	if lane, ok := l.Enter("late", paid); lane != lanes.Fast || !ok {
		t.Errorf("after its turn it is in lane %v: %v", lane, ok)
	}
}

// TestEnterSlow shows that work that is known to be expensive takes a place before it begins.
func TestEnterSlow(t *testing.T) {
	l := newLanes()
	for i := range places {
		name := fmt.Sprint("slow-", i)
		l.Enter(name, epoch)
		if !l.EnterSlow(name) {
			t.Fatalf("%s got no place", name)
		}
	}
	if lane, ok := l.Enter("late", epoch); lane != lanes.Fast || !ok {
		t.Fatalf("without a debt: lane %v, %v", lane, ok)
	}
	if l.EnterSlow("late") {
		t.Fatal("a third place was taken")
	}
	l.Leave("late", 0, epoch)
	if _, ok := l.Enter("late", epoch); ok {
		t.Fatal("the namespace enters although it needs a place")
	}
	if got := l.Leave("slow-0", 0, epoch); len(got) != 1 || got[0] != "late" {
		t.Fatalf("the place goes to %v", got)
	}
	if lane, ok := l.Enter("late", epoch); lane != lanes.Slow || !ok || !l.EnterSlow("late") {
		t.Errorf("it got lane %v, %v", lane, ok)
	}
}
