package permit_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"
)

func isIdle(pod simPod) bool { return !pod.waits && !pod.permitted }

// Begin lets an idle pod wait.
func (s *protocol) Begin(*rapid.T) {
	s.edit("begin", isIdle, func(pod *simPod) { pod.waits, pod.waitsSince = true, s.clock.Now() })
}

// BeginAll lets all idle pods wait.
func (s *protocol) BeginAll(*rapid.T) {
	for _, name := range s.pods.Names() {
		if pod := s.pods.Get(name).Value; isIdle(pod) {
			pod.waits, pod.waitsSince = true, s.clock.Now()
			s.put(pod)
		}
	}
}

// Beat changes a pod in a way that no rule reads.
func (s *protocol) Beat(*rapid.T) {
	s.edit("beat", func(simPod) bool { return true }, func(*simPod) {})
}

// Finish ends the lifecycle of a permitted pod.
func (s *protocol) Finish(*rapid.T) {
	s.edit("finish", func(pod simPod) bool { return pod.permitted }, func(pod *simPod) { pod.permitted, pod.available = false, true })
}

// Fail makes a pod unavailable without a permit.
func (s *protocol) Fail(*rapid.T) {
	s.edit("fail", func(pod simPod) bool { return pod.available }, func(pod *simPod) { pod.available = false })
}

// Heal makes such a pod available again.
func (s *protocol) Heal(*rapid.T) {
	s.edit("heal", func(pod simPod) bool { return !pod.available && !pod.permitted }, func(pod *simPod) { pod.available = true })
}

// Pass advances the clock.
func (s *protocol) Pass(t *rapid.T) {
	s.clock.Step(time.Duration(rapid.SampledFrom([]int{1, 300, 7_000, 25_000, 70_000}).Draw(t, "milliseconds")) * time.Millisecond)
}

func (s *protocol) draw(t *rapid.T) *leader {
	return s.leaders[rapid.IntRange(0, len(s.leaders)-1).Draw(t, "leader")]
}

// WatchPods delivers some events of pods to one leader.
func (s *protocol) WatchPods(t *rapid.T) { s.watchPods(t, s.draw(t)) }

func (s *protocol) watchPods(t *rapid.T, l *leader) {
	l.seenPods = max(l.seenPods, s.pods.Writes()-rapid.SampledFrom([]int{0, 1, 2, 3, 5, 20}).Draw(t, "lag of pods"))
}

// WatchRecords delivers some events of records to one leader.
func (s *protocol) WatchRecords(t *rapid.T) { s.watchRecords(t, s.draw(t)) }

func (s *protocol) watchRecords(t *rapid.T, l *leader) {
	l.seenRecords = max(l.seenRecords, s.records.Writes()-rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "lag of records"))
}

// WatchAll delivers everything to one leader.
func (s *protocol) WatchAll(t *rapid.T) { s.catchUp(s.draw(t)) }

func (s *protocol) catchUp(l *leader) {
	l.seenPods, l.seenRecords = s.pods.Writes(), s.records.Writes()
}

// Open starts a round of one leader, from the state that it has seen. The leader may be a new
// process; the unfinished round of the old one is abandoned.
func (s *protocol) Open(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) > 0 {
		s.met.abandoned++
	}
	l.writes = nil
	s.openReaching(t, l)
}

func (s *protocol) openReaching(t *rapid.T, l *leader) {
	unreached := []string{}
	if rapid.Bool().Draw(t, "out of time") {
		unreached = rapid.SliceOfDistinct(rapid.SampledFrom(s.pods.Names()), rapid.ID[string]).Draw(t, "unreached")
	}
	s.open(l, func(pod string) bool { return !slices.Contains(unreached, pod) })
}

// Step makes one write of an open round, or loses it, or lets it arrive later.
func (s *protocol) Step(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) == 0 {
		t.Skip("no round is open")
	}
	s.step(t, l)
}

func (s *protocol) step(t *rapid.T, l *leader) {
	write := l.writes[0]
	l.writes = l.writes[1:]
	switch rapid.SampledFrom([]string{"accepted", "accepted", "accepted", "unheard", "lost", "late", "late"}).Draw(t, "fate") {
	case "accepted":
		if !write() {
			l.writes = nil
		}
	case "unheard":
		write()
		l.writes = nil
	case "lost":
		l.writes = nil
	case "late":
		s.late = append(s.late, func() { write() })
		l.writes = nil
	}
}

// Round runs a complete round of a leader that has seen everything.
func (s *protocol) Round(t *rapid.T) {
	l := s.draw(t)
	s.catchUp(l)
	l.writes = nil
	s.openReaching(t, l)
	s.drain(l)
}

// FinishRound makes the remaining writes of an open round.
func (s *protocol) FinishRound(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) == 0 {
		t.Skip("no round is open")
	}
	s.drain(l)
}

func (s *protocol) drain(l *leader) {
	for len(l.writes) > 0 {
		write := l.writes[0]
		l.writes = l.writes[1:]
		if !write() {
			l.writes = nil
		}
	}
}

// Race opens a round of each leader, from the state that each has seen by then, and interleaves
// their writes.
func (s *protocol) Race(t *rapid.T) {
	for _, l := range s.leaders {
		if rapid.Bool().Draw(t, "sees pods") {
			s.watchPods(t, l)
		}
		s.watchRecords(t, l)
		l.writes = nil
		s.openReaching(t, l)
	}
	for {
		open := slices.DeleteFunc(slices.Clone(s.leaders), func(l *leader) bool { return len(l.writes) == 0 })
		if len(open) == 0 {
			return
		}
		s.step(t, open[rapid.IntRange(0, len(open)-1).Draw(t, "leader")])
	}
}

// Late delivers a write whose leader has timed out.
func (s *protocol) Late(t *rapid.T) {
	if len(s.late) == 0 {
		t.Skip("nothing is under way")
	}
	i := rapid.IntRange(0, len(s.late)-1).Draw(t, "late")
	write := s.late[i]
	s.late = slices.Delete(s.late, i, i+1)
	before := s.met.stamps
	write()
	s.met.late += s.met.stamps - before
}

// settle ends all faults: one leader is left that sees everything, permitted pods finish,
// and time passes. Then every pod that waits is permitted, in spite of all abandoned
// reservations.
func (s *protocol) settle() {
	l := s.leaders[0]
	l.writes = nil
	const rounds = 20 // 5 pods, each of which may have to be invalidated first
	for range rounds {
		for _, name := range s.pods.Names() {
			if pod := s.pods.Get(name).Value; pod.permitted {
				pod.permitted, pod.available = false, true
				s.put(pod)
			}
		}
		s.clock.Step(window)
		s.catchUp(l)
		s.open(l, func(string) bool { return true })
		s.drain(l)
	}
	for _, name := range s.pods.Names() {
		if s.pods.Get(name).Value.waits {
			s.t.Fatal(fmt.Sprintf("%s waits for ever", name))
		}
	}
}
