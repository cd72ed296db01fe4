package permit_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

func isIdle(pod simPod) bool { return !pod.waits && !pod.permitted }

// Begin lets an idle pod wait.
func (s *sim) Begin(*rapid.T) {
	s.edit("begin", isIdle, func(pod *simPod) { pod.waits, pod.waitsSince = true, s.now })
}

// BeginAll lets all idle pods wait.
func (s *sim) BeginAll(*rapid.T) {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if pod := s.pods[name]; isIdle(pod) {
			pod.waits, pod.waitsSince = true, s.now
			s.put(pod)
		}
	}
}

// Beat changes a pod in a way that no rule reads.
func (s *sim) Beat(*rapid.T) { s.edit("beat", func(simPod) bool { return true }, func(*simPod) {}) }

// Finish ends the lifecycle of a permitted pod.
func (s *sim) Finish(*rapid.T) {
	s.edit("finish", func(pod simPod) bool { return pod.permitted }, func(pod *simPod) { pod.permitted, pod.available = false, true })
}

// Fail makes a pod unavailable without a permit.
func (s *sim) Fail(*rapid.T) {
	s.edit("fail", func(pod simPod) bool { return pod.available }, func(pod *simPod) { pod.available = false })
}

// Heal makes such a pod available again.
func (s *sim) Heal(*rapid.T) {
	s.edit("heal", func(pod simPod) bool { return !pod.available && !pod.permitted }, func(pod *simPod) { pod.available = true })
}

// Pass advances the clock.
func (s *sim) Pass(t *rapid.T) {
	s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{1, 300, 7_000, 25_000, 70_000}).Draw(t, "milliseconds")) * time.Millisecond)
}

func (s *sim) draw(t *rapid.T) *leader {
	return s.leaders[rapid.IntRange(0, len(s.leaders)-1).Draw(t, "leader")]
}

// WatchPods delivers some events of pods to one leader.
func (s *sim) WatchPods(t *rapid.T) { s.watchPods(t, s.draw(t)) }

func (s *sim) watchPods(t *rapid.T, l *leader) {
	l.seenPods = max(l.seenPods, len(s.history)-rapid.SampledFrom([]int{0, 1, 2, 3, 5, 20}).Draw(t, "lag of pods"))
}

// WatchRecords delivers some events of records to one leader.
func (s *sim) WatchRecords(t *rapid.T) { s.watchRecords(t, s.draw(t)) }

func (s *sim) watchRecords(t *rapid.T, l *leader) {
	l.seenRecords = max(l.seenRecords, len(s.changes)-1-rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "lag of records"))
}

// WatchAll delivers everything to one leader.
func (s *sim) WatchAll(t *rapid.T) { s.catchUp(s.draw(t)) }

func (s *sim) catchUp(l *leader) { l.seenPods, l.seenRecords = len(s.history), len(s.changes)-1 }

// Open starts a round of one leader, from the state that it has seen. The leader may be a new
// process; the unfinished round of the old one is abandoned.
func (s *sim) Open(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) > 0 {
		s.met.abandoned++
	}
	l.writes = nil
	s.openReaching(t, l)
}

func (s *sim) openReaching(t *rapid.T, l *leader) {
	unreached := []string{}
	if rapid.Bool().Draw(t, "out of time") {
		unreached = rapid.SliceOfDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(s.pods))), rapid.ID[string]).Draw(t, "unreached")
	}
	s.open(l, func(pod string) bool { return !slices.Contains(unreached, pod) })
}

// Step makes one write of an open round, or loses it, or lets it arrive later.
func (s *sim) Step(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) == 0 {
		t.Skip("no round is open")
	}
	s.step(t, l)
}

func (s *sim) step(t *rapid.T, l *leader) {
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
func (s *sim) Round(t *rapid.T) {
	l := s.draw(t)
	s.catchUp(l)
	l.writes = nil
	s.openReaching(t, l)
	s.drain(l)
}

// FinishRound makes the remaining writes of an open round.
func (s *sim) FinishRound(t *rapid.T) {
	l := s.draw(t)
	if len(l.writes) == 0 {
		t.Skip("no round is open")
	}
	s.drain(l)
}

func (s *sim) drain(l *leader) {
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
func (s *sim) Race(t *rapid.T) {
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
func (s *sim) Late(t *rapid.T) {
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
func (s *sim) settle() {
	l := s.leaders[0]
	l.writes = nil
	const rounds = 20 // 5 pods, each of which may have to be invalidated first
	for range rounds {
		for _, name := range slices.Sorted(maps.Keys(s.pods)) {
			if pod := s.pods[name]; pod.permitted {
				pod.permitted, pod.available = false, true
				s.put(pod)
			}
		}
		s.now = s.now.Add(window)
		s.catchUp(l)
		s.open(l, func(string) bool { return true })
		s.drain(l)
	}
	for name, pod := range s.pods {
		if pod.waits {
			s.t.Fatal(fmt.Sprintf("%s waits for ever", name))
		}
	}
}
