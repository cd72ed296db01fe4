package permit_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/test/sim"
)

// window is the window of the second rule of the simulation: object "shards" lets one pod of
// a shard go at a time, and object "window" a few pods in any window.
const window = 60 * time.Second

// simPod is a pod as the server stores it. It is replaced, not modified.
type simPod struct {
	name                        string
	waits, permitted, available bool
	waitsSince                  time.Time
}

// statusVersion is one version of the status of an object.
type statusVersion = sim.Object[*appsv1alpha1.PermitRecord]

// stamped is a permit that the server accepted, and its time in the record.
type stamped struct {
	pod string
	at  time.Time
}

// protocol is a server and several leaders, each of which acts as if it were the only one.
type protocol struct {
	t       *rapid.T
	clock   *sim.Clock
	pods    *sim.Server[simPod]
	records *sim.Server[*appsv1alpha1.PermitRecord] // the status of each object
	leaders []*leader
	late    []func()
	stamps  []stamped
	met     *simMet

	// perWindow is how many permits a window takes.
	perWindow int
}

// simMet counts the cases that the schedules reached.
type simMet struct {
	schedules, stamps, unavailable, conflicts, stale, denied, late, abandoned int
}

// leader has seen the pods and the records up to some point, and may have a plan open.
type leader struct {
	seenPods, seenRecords int
	writes                []func() bool // of the open plan, in order; false ends it
}

func newSim(t *rapid.T, met *simMet) *protocol {
	met.schedules++
	versions := &sim.Versions{}
	s := &protocol{
		t: t, clock: sim.NewClock(), met: met,
		pods: sim.NewServer[simPod](versions), records: sim.NewServer[*appsv1alpha1.PermitRecord](versions),
	}
	s.perWindow = rapid.SampledFrom([]int{1, 2, 20, 20}).Draw(t, "permits per window") // 20: the rule hides nothing of the other one
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2"} {
		s.put(simPod{name: name, available: true})
	}
	s.leaders = []*leader{{seenPods: s.pods.Writes()}, {seenPods: s.pods.Writes()}}
	return s
}

func (s *protocol) put(pod simPod) { s.pods.Put(pod.name, pod) }

func (s *protocol) edit(label string, may func(simPod) bool, change func(*simPod)) {
	var names []string
	for _, name := range s.pods.Names() {
		if may(s.pods.Get(name).Value) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		s.t.Skip("no pod to " + label)
	}
	pod := s.pods.Get(rapid.SampledFrom(names).Draw(s.t, label)).Value
	change(&pod)
	s.put(pod)
}

// plan returns the plan of a leader from the state that it has seen. Some
// rechecks are not reached.
func (s *protocol) plan(l *leader, reached func(pod string) bool) (permit.Plan, map[string]statusVersion, func(types.UID) string, string) {
	seen, version := s.pods.View(l.seenPods)
	seenUpTo := strconv.Itoa(version)
	at := func(uid types.UID) string {
		if pod, ok := seen[string(uid)]; ok {
			return pod.ResourceVersion()
		}
		return ""
	}
	records, _ := s.records.View(l.seenRecords)
	var budgets []permit.Budget
	for _, object := range []string{"shards", "window"} {
		record := records[object].Value
		if !permit.Reaches(seenUpTo, record) {
			s.met.stale++
			return permit.Plan{}, nil, nil, ""
		}
		b := permit.Budget{Ruleset: object, Sequential: true, KeepsRecent: object == "window", Live: map[types.UID]appsv1alpha1.ReservedPod{}}
		for _, pod := range permit.Live(record, at) {
			b.Live[pod.UID] = pod
		}
		if record != nil {
			for _, recent := range record.Recent {
				b.Recent = append(b.Recent, rule.Permit{Pod: recent.Pod, At: recent.Time.Time})
			}
		}
		budgets = append(budgets, b)
	}
	var candidates []permit.Candidate
	for _, pod := range seen {
		if pod.Value.waits {
			candidates = append(candidates, s.candidate(pod))
		}
	}
	now := s.clock.Now()
	recheck := func(id rule.RuleID, request rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		if !reached(request.Pod.Name) {
			return rule.Verdict{}, false
		}
		if id.Ruleset.Name == "window" {
			return inWindow(committed.Permits, now, s.perWindow), true
		}
		return aloneInShard(seen, request.Pod.UID, committed.Pods), true
	}
	plan := permit.Next(budgets, candidates, recheck, now)
	s.met.denied += len(plan.Denied)
	return plan, records, at, seenUpTo
}

func (s *protocol) candidate(object sim.Object[simPod]) permit.Candidate {
	pod := object.Value
	return permit.Candidate{
		Request: rule.Request{
			Pod: &rule.PodFact{
				UID: types.UID(pod.name), Namespace: namespace, Name: pod.name, ResourceVersion: object.ResourceVersion(),
				Available: pod.available, Permitted: pod.permitted,
			},
			Stage: appsv1alpha1.StagePreCheck, ID: "a", Type: "upgrade", Since: pod.waitsSince,
		},
		Budgets:   []string{"shards", "window"},
		Rechecked: []rule.RuleID{ruleID("shards", "one"), ruleID("window", "few")},
	}
}

// inWindow passes while fewer than limit permits were given within the window.
func inWindow(permits []rule.Permit, now time.Time, limit int) rule.Verdict {
	given := 0
	for _, p := range permits {
		if now.Sub(p.At) < window {
			given++
		}
	}
	if given >= limit {
		return rule.Verdict{Code: rule.CodeDenied}
	}
	return rule.Verdict{Outcome: rule.Passed}
}

// aloneInShard passes while no other pod of the shard is committed, or permitted in the view.
func aloneInShard(seen map[string]sim.Object[simPod], pod types.UID, committed map[types.UID]bool) rule.Verdict {
	for name, other := range seen {
		if uid := types.UID(name); uid != pod && shardOf(uid) == shardOf(pod) && (other.Value.permitted || committed[uid]) {
			return rule.Verdict{Code: rule.CodeDenied}
		}
	}
	return rule.Verdict{Outcome: rule.Passed}
}

// open starts a round: its writes are the records in the order of their names, then the
// stamps and the invalidations.
func (s *protocol) open(l *leader, reached func(pod string) bool) {
	plan, records, at, seenUpTo := s.plan(l, reached)
	if records == nil {
		return
	}
	for _, object := range slices.Sorted(maps.Keys(plan.Reserve)) {
		old := records[object]
		next := permit.NextRecord(old.Value, appsv1alpha1.PermitRecord{Reserved: plan.Reserve[object], Recent: plan.Recent[object], Owners: plan.Owners[object]}, at, seenUpTo)
		l.writes = append(l.writes, func() bool { return s.writeRecord(l, object, old.Version, next) })
	}
	for _, request := range plan.Grants {
		decided := request.Pod
		l.writes = append(l.writes, func() bool { s.stamp(decided); return true })
	}
	for _, uid := range plan.Invalidate {
		version := at(uid)
		l.writes = append(l.writes, func() bool {
			if pod := s.pods.Get(string(uid)); pod.ResourceVersion() == version {
				s.put(pod.Value)
			}
			return true
		})
	}
}

// writeRecord updates a record under the version that was read. The leader sees the response.
func (s *protocol) writeRecord(l *leader, object string, read int, next *appsv1alpha1.PermitRecord) bool {
	if _, err := s.records.Update(object, read, next); err != nil {
		s.met.conflicts++
		return false
	}
	l.seenRecords = s.records.Writes()
	return true
}

// stamp writes a permit to an unchanged pod, and checks that the rules hold afterwards.
func (s *protocol) stamp(decided *rule.PodFact) {
	object := s.pods.Get(decided.Name)
	if object.ResourceVersion() != decided.ResourceVersion {
		return
	}
	pod := object.Value
	for _, name := range s.pods.Names() {
		if other := s.pods.Get(name).Value; other.permitted && other.name != pod.name && other.name[0] == pod.name[0] {
			s.t.Fatalf("%s is permitted beside %s", pod.name, other.name)
		}
	}
	s.met.stamps++
	if !pod.available {
		s.met.unavailable++
	}
	pod.waits, pod.permitted, pod.available = false, true, false
	s.put(pod)
	s.countStamp(pod.name)
}

// countStamp checks that the permit is in the record, and that no window has too many, by the
// times of the records.
func (s *protocol) countStamp(pod string) {
	record := s.records.Get("window").Value
	if record == nil {
		s.t.Fatalf("%s is permitted without a record", pod)
	}
	last := time.Time{}
	for _, recent := range record.Recent {
		if recent.Pod == pod {
			last = recent.Time.Time
		}
	}
	if last.IsZero() {
		s.t.Fatalf("the permit of %s is not recorded", pod)
	}
	s.stamps = append(s.stamps, stamped{pod, last})
	slices.SortStableFunc(s.stamps, func(a, b stamped) int { return a.at.Compare(b.at) })
	for i := range max(0, len(s.stamps)-s.perWindow) {
		first, beyond := s.stamps[i], s.stamps[i+s.perWindow]
		if beyond.at.Sub(first.at) < window {
			s.t.Fatalf("more than %d permits from %s (%s) to %s (%s)", s.perWindow, first.at, first.pod, beyond.at, beyond.pod)
		}
	}
}

// TestNoScheduleOfPlansBreaksARule lets two leaders with views of any age make plans
// at once, and loses, delays and repeats their writes, or kills the leaders between any two.
// In every interleaving, each permit that the server accepts keeps the rules.
func TestNoScheduleOfPlansBreaksARule(t *testing.T) {
	met := &simMet{}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 { // a schedule is short, and some cases are rare
			s := newSim(t, met)
			t.Repeat(s.actions())
			s.settle()
		}
	})
	t.Logf("%+v", *met)
	if met.schedules < 2000 || t.Failed() {
		return
	}
	for what, count := range map[string]int{
		"permit": met.stamps, "permit of an unavailable pod": met.unavailable, "conflict over a record": met.conflicts,
		"view that did not reach": met.stale, "denial": met.denied, "late stamp": met.late, "abandoned reservation": met.abandoned,
	} {
		if count == 0 {
			t.Errorf("no schedule came across a %s", what)
		}
	}
}

// actions returns the actions by name; actions with two names are drawn more often.
func (s *protocol) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin": s.Begin, "begin all": s.BeginAll, "beat": s.Beat, "finish": s.Finish, "fail": s.Fail, "heal": s.Heal,
		"pass": s.Pass, "watch pods": s.WatchPods, "watch records": s.WatchRecords, "watch all": s.WatchAll,
		"open": s.Open, "step": s.Step, "step again": s.Step, "finish round": s.FinishRound, "race": s.Race, "race again": s.Race, "round": s.Round,
		"late": s.Late, "late again": s.Late,
	}
}
