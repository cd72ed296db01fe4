package steadyclock

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine has clocks that the test steps.
type machine struct {
	reading Reading
	jumps   []time.Duration
}

func newMachine() (*machine, *Clock) {
	m := &machine{reading: Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	return m, start(func() Reading { return m.reading }, func(by time.Duration) { m.jumps = append(m.jumps, by) })
}

func (m *machine) pass(d time.Duration) {
	m.reading.Wall, m.reading.Elapsed = m.reading.Wall.Add(d), m.reading.Elapsed+d
}

func (m *machine) set(by time.Duration) { m.reading.Wall = m.reading.Wall.Add(by) }

// TestTimePassesAtAnySettingOfTheMachine shows that however the clock of the machine is set, the
// time of a Clock differs from the elapsed time by at most one part in twenty, and never goes
// back.
func TestTimePassesAtAnySettingOfTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, clock := newMachine()
		before, passed := clock.Now(), time.Duration(0)
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "time"))
				m.pass(d)
				passed += d
			},
			"set": func(t *rapid.T) {
				m.set(time.Duration(rapid.Int64Range(int64(-100*time.Hour), int64(100*time.Hour)).Draw(t, "by")))
			},
			"look": func(t *rapid.T) {
				now := clock.Now()
				if shown := now.Sub(before); shown < passed-passed/slew-1 || shown > passed+passed/slew+1 {
					t.Fatalf("%s have passed, and the clock shows %s", passed, shown)
				}
				before, passed = now, 0
			},
		})
	})
}

// TestAClockFollowsTheMachine shows that it converges to the time of the machine.
func TestAClockFollowsTheMachine(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 100 * time.Millisecond} {
		m, clock := newMachine()
		m.set(by)
		for range 22 * 60 {
			m.pass(time.Minute)
			clock.Now()
		}
		if now := clock.Now(); !now.Equal(m.reading.Wall) {
			t.Errorf("set by %s: the clock shows %s, the machine %s", by, now, m.reading.Wall)
		}
	}
}

func TestJumpsAreReported(t *testing.T) {
	m, clock := newMachine()
	m.pass(time.Hour)
	clock.Now()
	m.set(10 * time.Millisecond)
	clock.Now()
	if len(m.jumps) != 0 {
		t.Errorf("jumps %v, and the clock was only adjusted", m.jumps)
	}
	m.set(time.Hour)
	clock.Now()
	m.pass(time.Minute)
	clock.Now()
	m.set(-time.Minute)
	if now := clock.Since(clock.Now()); now != 0 {
		t.Errorf("%s have passed since now", now)
	}
	if len(m.jumps) != 2 || m.jumps[0] != time.Hour || m.jumps[1] != -time.Minute {
		t.Errorf("jumps %v, want an hour forward and a minute back", m.jumps)
	}
}

// TestTheMachineIsRead shows that a Clock for this machine follows it.
func TestTheMachineIsRead(t *testing.T) {
	clock := New(func(by time.Duration) { t.Errorf("a jump by %s", by) })
	if off := time.Until(clock.Now()).Abs(); off > time.Minute {
		t.Errorf("the clock is off by %s", off)
	}
}
