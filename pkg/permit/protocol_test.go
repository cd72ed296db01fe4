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
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/rule"
)

// window is the window of the second rule of the simulation: object "shards" lets one pod of
// a shard go at a time, and object "window" a few pods in any window.
const window = 60 * time.Second

// simPod is a pod as the server stores it. It is replaced, not modified.
type simPod struct {
	name                        string
	version                     int
	waits, permitted, available bool
	waitsSince                  time.Time
}

// simRecord is the status of one object.
type simRecord struct {
	version int
	permits *appsv1alpha1.PermitRecord
}

// stamped is a permit that the server accepted, and its time in the record.
type stamped struct {
	pod string
	at  time.Time
}

// sim is a server and several leaders, each of which acts as if it were the only one.
type sim struct {
	t       *rapid.T
	now     time.Time
	version int
	pods    map[string]simPod
	history []simPod // of all pods, in the order of versions
	records map[string]simRecord
	changes []map[string]simRecord // of the records, in order
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

func newSim(t *rapid.T, met *simMet) *sim {
	met.schedules++
	s := &sim{t: t, now: epoch, pods: map[string]simPod{}, records: map[string]simRecord{}, met: met}
	s.perWindow = rapid.SampledFrom([]int{1, 2, 20, 20}).Draw(t, "permits per window") // 20: the rule hides nothing of the other one
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2"} {
		s.put(simPod{name: name, available: true})
	}
	s.changes = append(s.changes, maps.Clone(s.records))
	s.leaders = []*leader{{seenPods: len(s.history)}, {seenPods: len(s.history)}}
	return s
}

func (s *sim) put(pod simPod) {
	s.version++
	pod.version = s.version
	s.pods[pod.name] = pod
	s.history = append(s.history, pod)
}

func (s *sim) edit(label string, may func(simPod) bool, change func(*simPod)) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if may(s.pods[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		s.t.Skip("no pod to " + label)
	}
	pod := s.pods[rapid.SampledFrom(names).Draw(s.t, label)]
	change(&pod)
	s.put(pod)
}

// plan returns the plan of a leader from the state that it has seen. Some
// rechecks are not reached.
func (s *sim) plan(l *leader, reached func(pod string) bool) (permit.Plan, map[string]simRecord, func(types.UID) string, string) {
	seen := map[types.UID]simPod{}
	for _, pod := range s.history[:l.seenPods] {
		seen[types.UID(pod.name)] = pod
	}
	seenUpTo := strconv.Itoa(s.history[l.seenPods-1].version)
	at := func(uid types.UID) string {
		if pod, ok := seen[uid]; ok {
			return strconv.Itoa(pod.version)
		}
		return ""
	}
	records := s.changes[l.seenRecords]
	var budgets []permit.Budget
	for _, object := range []string{"shards", "window"} {
		record := records[object].permits
		if !permit.Reaches(seenUpTo, record) {
			s.met.stale++
			return permit.Plan{}, nil, nil, ""
		}
		b := permit.Budget{Object: object, Sequential: true, KeepsRecent: object == "window", Live: map[types.UID]appsv1alpha1.ReservedPod{}}
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
		if pod.waits {
			candidates = append(candidates, s.candidate(pod))
		}
	}
	now := s.now
	recheck := func(id rule.RuleID, request rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		if !reached(request.Pod.Name) {
			return rule.Verdict{}, false
		}
		if id.Object.Name == "window" {
			return inWindow(committed.Permits, now, s.perWindow), true
		}
		return aloneInShard(seen, request.Pod.UID, committed.Pods), true
	}
	plan := permit.Next(budgets, candidates, recheck, now)
	s.met.denied += len(plan.Refused)
	return plan, records, at, seenUpTo
}

func (s *sim) candidate(pod simPod) permit.Candidate {
	return permit.Candidate{
		Request: rule.Request{
			Pod: &rule.PodFact{
				UID: types.UID(pod.name), Namespace: namespace, Name: pod.name, ResourceVersion: strconv.Itoa(pod.version),
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
func aloneInShard(seen map[types.UID]simPod, pod types.UID, committed map[types.UID]bool) rule.Verdict {
	for uid, other := range seen {
		if uid != pod && shardOf(uid) == shardOf(pod) && (other.permitted || committed[uid]) {
			return rule.Verdict{Code: rule.CodeDenied}
		}
	}
	return rule.Verdict{Outcome: rule.Passed}
}

// open starts a round: its writes are the records in the order of their names, then the
// stamps and the invalidations.
func (s *sim) open(l *leader, reached func(pod string) bool) {
	plan, records, at, seenUpTo := s.plan(l, reached)
	if records == nil {
		return
	}
	for _, object := range slices.Sorted(maps.Keys(plan.Reserve)) {
		old := records[object]
		next := permit.NextRecord(old.permits, plan.Reserve[object], plan.Recent[object], plan.Owners[object], at, seenUpTo)
		l.writes = append(l.writes, func() bool { return s.writeRecord(l, object, old.version, next) })
	}
	for _, request := range plan.Grants {
		decided := request.Pod
		l.writes = append(l.writes, func() bool { s.stamp(decided); return true })
	}
	for _, uid := range plan.Invalidate {
		version := at(uid)
		l.writes = append(l.writes, func() bool {
			if pod := s.pods[string(uid)]; strconv.Itoa(pod.version) == version {
				s.put(pod)
			}
			return true
		})
	}
}

// writeRecord updates a record under the version that was read. The leader sees the response.
func (s *sim) writeRecord(l *leader, object string, read int, next *appsv1alpha1.PermitRecord) bool {
	if s.records[object].version != read {
		s.met.conflicts++
		return false
	}
	s.version++
	s.records[object] = simRecord{version: s.version, permits: next}
	s.changes = append(s.changes, maps.Clone(s.records))
	l.seenRecords = len(s.changes) - 1
	return true
}

// stamp writes a permit to an unchanged pod, and checks that the rules hold afterwards.
func (s *sim) stamp(decided *rule.PodFact) {
	pod := s.pods[decided.Name]
	if strconv.Itoa(pod.version) != decided.ResourceVersion {
		return
	}
	for _, other := range s.pods {
		if other.permitted && other.name != pod.name && other.name[0] == pod.name[0] {
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
func (s *sim) countStamp(pod string) {
	record := s.records["window"].permits
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
func (s *sim) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin": s.Begin, "begin all": s.BeginAll, "beat": s.Beat, "finish": s.Finish, "fail": s.Fail, "heal": s.Heal,
		"pass": s.Pass, "watch pods": s.WatchPods, "watch records": s.WatchRecords, "watch all": s.WatchAll,
		"open": s.Open, "step": s.Step, "step again": s.Step, "finish round": s.FinishRound, "race": s.Race, "race again": s.Race, "round": s.Round,
		"late": s.Late, "late again": s.Late,
	}
}
