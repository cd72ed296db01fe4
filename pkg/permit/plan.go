package permit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// Budget is what one PodTransitionRule has to give: one with an availablePolicy, or
// with a rule that judges a pod by other pods.
type Budget struct {
	// Object is the PodTransitionRule.
	Object string

	// Slots that each of its availability rules may hand out, by rule name. Live
	// reservations are already taken off; it is below zero when they leave too few pods
	// available, since pods have failed after they were made. Empty when it has no such
	// rule.
	Slots map[string]int

	// Live are the reservations that may still be stamped, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod

	// Judged: a rule of it judges a pod by other pods, or by the permits given lately.
	// Every PreCheck permit is recorded then, that of an unavailable pod too: it takes
	// no slot, and others are judged by it nevertheless.
	Sequential bool

	// KeepsRecent: a rule of it reads the permits given lately, so its record lists
	// them.
	KeepsRecent bool

	// Owners count the pods of workloads whose desired number is not known, by UID. Before
	// one of their pods gets a PreCheck permit, an unavailable one too, the record says how
	// many there were: a pod that goes must not lower the bound for the next one.
	Owners map[types.UID]int

	// Remembered are such numbers of its record that still count.
	Remembered map[types.UID]int

	// Inherited: Live and Recent come from the record of a deleted PodTransitionRule of the
	// same name, so its own record has to be written before any pod is stamped.
	Inherited bool

	// Recent are the permits that its record lists, oldest first. They are those that
	// rules see if KeepsRecent is set.
	Recent []rule.Permit
}

// Candidate is a waiting request that every rule lets pass, or would with a slot.
type Candidate struct {
	Request rule.Request

	// Needs are the rules of which the request needs a slot. Sorted.
	Needs []rule.RuleID

	// Budgets are the names of all PodTransitionRules with a budget that select the
	// pod, whether or not a rule of theirs applies to this request: a permit makes
	// the pod unavailable for all of them. Sorted.
	Budgets []string

	// Judges are the rules that have to be asked again, given what was taken before it
	// is this request's turn. Sorted. The object of one that is enforced in PreCheck
	// has a Judged budget. A pod in the record of that object is asked about here only:
	// outside of Next the rule would see the permit of the pod itself among the others.
	Rechecked []rule.RuleID

	// Missed is in how many rounds in a row the pod had no turn (Plan.Missed).
	Missed int
}

// Denial says which rule holds back a request that was not withheld before.
type Denial struct {
	Request rule.Request

	// Rule that refuses. Its name within the object is empty when the record of the
	// object is full: no rule is to blame, and the rest follows in the next batch.
	Rule rule.RuleID

	// Verdict of a rule that judged. Its code is CodeNoRoom when a slot was missing,
	// and CodeNotReached when there was no time left to ask.
	Verdict rule.Verdict
}

// Plan is what to do next.
type Plan struct {
	// Grants may be stamped, after the records they are in have been written.
	Grants []rule.Request

	// Reserve are the complete new lists of reservations of the objects to which
	// something was added, by name. Objects that are missing stay as they are.
	Reserve map[string][]appsv1alpha1.ReservedPod

	// Recent are the complete lists of the permits given lately, oldest first, of all
	// objects that keep one, by name: what was there, and what Reserve adds.
	Recent map[string][]appsv1alpha1.RecentPermit

	// Owners are the complete lists of the numbers of pods to remember, sorted, of all
	// objects that have any, by name.
	Owners map[string][]appsv1alpha1.OwnerPods

	// NeedsRecords names, per UID, the objects whose record must hold the pod before
	// it is stamped. Pods that need no record are missing.
	NeedsRecords map[types.UID][]string

	// Refused wait for a slot, or for other pods.
	Refused []Denial

	// Missed are the pods whose judges were not all asked for want of time, and in how many rounds in
	// a row that is so. Those that missed the most come first in the next round. A pod that comes first
	// has had its turn, even if its judges take longer than a round.
	Missed map[types.UID]int

	// Touch are pods that hold a live reservation and are withheld: they have to be
	// written, so that the reservation dies. Sorted.
	Invalidate []types.UID
}

// Next hands out the slots of the budgets to the candidates: first to those whose turn earlier
// rounds had no time for, then to pods that are reserved already, then in the order in which they
// began to wait. A request that has
// its slots is put before its judges, each of which sees what was taken up to then; a
// slot is only taken when all of them let it pass. now is the time of the permits. Next
// never changes its arguments, and does not depend on the order of candidates, provided
// that judge is a function of its own arguments.
func Next(budgets []Budget, candidates []Candidate, judge Recheck, now time.Time) Plan {
	h := newHandOut(budgets, judge, now)
	for _, pod := range byPod(candidates, h) {
		h.give(pod)
	}
	h.records()
	h.invalidateWithheld()
	h.missed(candidates)
	return h.plan
}

// allocation is the working state of one Next.
type allocation struct {
	budgets map[string]*openBudget
	judge   Recheck
	now     time.Time

	// granted a PreCheck permit in this round.
	granted map[types.UID]bool

	// taken are granted, or hold a live reservation.
	taken map[types.UID]bool

	// unreached were refused for want of time alone.
	unreached map[types.UID]bool

	// first is the first pod of which a judge was asked; empty before that.
	first types.UID

	plan Plan
}

func newHandOut(budgets []Budget, judge Recheck, now time.Time) *allocation {
	h := &allocation{
		budgets: map[string]*openBudget{}, judge: judge, now: ceilSecond(now),
		granted: map[types.UID]bool{}, taken: map[types.UID]bool{}, unreached: map[types.UID]bool{},
	}
	for _, b := range budgets {
		h.budgets[b.Object] = &openBudget{
			slots: maps.Clone(b.Slots), live: b.Live, reserved: maps.Clone(b.Live), changed: b.Inherited,
			owners: b.Owners, remembered: maps.Clone(b.Remembered),
			rechecked: b.Sequential, keepsRecent: b.KeepsRecent, recent: slices.Clip(b.Recent),
		}
		for uid := range b.Live {
			h.taken[uid] = true
		}
	}
	return h
}

// missed counts the rounds without a turn.
func (h *allocation) missed(candidates []Candidate) {
	for _, c := range candidates {
		uid := c.Request.Pod.UID
		if !h.unreached[uid] || uid == h.first {
			continue
		}
		if h.plan.Missed == nil {
			h.plan.Missed = map[types.UID]int{}
		}
		h.plan.Missed[uid] = max(h.plan.Missed[uid], c.Missed+1)
	}
}

// byPod groups the candidates by pod. Pods that missed their turn come first, then those with a
// live reservation, then the oldest request, then the name; the requests of a pod are sorted alike.
func byPod(candidates []Candidate, h *allocation) [][]Candidate {
	groups := map[types.UID][]Candidate{}
	for _, c := range candidates {
		groups[c.Request.Pod.UID] = append(groups[c.Request.Pod.UID], c)
	}
	pods := slices.Collect(maps.Values(groups))
	for _, pod := range pods {
		slices.SortFunc(pod, func(a, b Candidate) int {
			return cmp.Or(a.Request.Since.Compare(b.Request.Since), strings.Compare(a.Request.Key(), b.Request.Key()))
		})
	}
	slices.SortFunc(pods, func(a, b []Candidate) int {
		first, second := a[0].Request, b[0].Request
		return cmp.Or(
			cmp.Compare(missed(b), missed(a)),
			cmp.Compare(h.rank(first.Pod.UID), h.rank(second.Pod.UID)),
			first.Since.Compare(second.Since),
			strings.Compare(first.Pod.Name, second.Pod.Name),
			strings.Compare(string(first.Pod.UID), string(second.Pod.UID)),
		)
	})
	return pods
}

// missed is how often the pod of candidates had no turn.
func missed(pod []Candidate) int {
	most := 0
	for _, c := range pod {
		most = max(most, c.Missed)
	}
	return most
}

// rank is 0 for pods that hold a reservation and 1 for all others.
func (h *allocation) rank(uid types.UID) int {
	for _, b := range h.budgets {
		if _, ok := b.live[uid]; ok {
			return 0
		}
	}
	return 1
}

// give grants what it can of one pod's requests. They share one slot: the pod goes
// offline once.
func (h *allocation) give(pod []Candidate) {
	for _, c := range pod {
		if refusal, refused := h.refuse(c); refused {
			h.plan.Refused = append(h.plan.Refused, refusal)
			continue
		}
		// A PostCheck permit brings the pod back. Nothing is taken.
		if c.Request.Stage != appsv1alpha1.StagePostCheck {
			h.take(c)
		}
		h.plan.Grants = append(h.plan.Grants, c.Request)
	}
}

// refuse says why a request gets no permit now, if it does not. Nothing is taken yet.
func (h *allocation) refuse(c Candidate) (Denial, bool) {
	if c.Request.Stage != appsv1alpha1.StagePostCheck && !h.granted[c.Request.Pod.UID] {
		if id, short := h.short(c); short {
			return Denial{Request: c.Request, Rule: id, Verdict: rule.Verdict{Code: rule.CodeNoRoom}}, true
		}
	}
	return h.rechecked(c)
}

// short returns the first rule that the request needs a slot of and that has none. A
// pod that is unavailable needs none, and one that is reserved already has its slot, as
// long as the rule is not short of pods by itself. A full record stops everybody whom it has to hold: the rule name is empty then, and the
// rest follows in the next batch.
func (h *allocation) short(c Candidate) (rule.RuleID, bool) {
	pod := c.Request.Pod
	for _, need := range c.Needs {
		if !pod.Available {
			break
		}
		b, ok := h.budgets[need.Object.Name]
		if !ok {
			return need, true
		}
		slots := b.slots[need.Rule]
		if slots < 0 || slots == 0 && !hasUID(b.live, pod.UID) {
			return need, true
		}
	}
	for _, name := range c.Budgets {
		b, ok := h.budgets[name]
		if ok && b.full(pod) {
			return rule.RuleID{Object: types.NamespacedName{Namespace: pod.Namespace, Name: name}}, true
		}
	}
	return rule.RuleID{}, false
}

func hasUID(reserved map[types.UID]appsv1alpha1.ReservedPod, uid types.UID) bool {
	_, ok := reserved[uid]
	return ok
}

// take records the pod with every budget that has to know of it, the first time that
// one of its requests is granted.
func (h *allocation) take(c Candidate) {
	pod := c.Request.Pod
	if h.granted[pod.UID] {
		return
	}
	h.granted[pod.UID], h.taken[pod.UID] = true, true
	for _, name := range c.Budgets {
		b, ok := h.budgets[name]
		if !ok || !b.records(pod) {
			continue
		}
		if h.plan.NeedsRecords == nil {
			h.plan.NeedsRecords = map[types.UID][]string{}
		}
		h.plan.NeedsRecords[pod.UID] = append(h.plan.NeedsRecords[pod.UID], name)
		b.take(pod, h.now)
	}
}

// records fills in the lists of the objects to which something was added, and the
// permits of those that keep them.
func (h *allocation) records() {
	for name, b := range h.budgets {
		if b.changed {
			if h.plan.Reserve == nil {
				h.plan.Reserve = map[string][]appsv1alpha1.ReservedPod{}
			}
			h.plan.Reserve[name] = sortedReservations(b.reserved)
		}
		if len(b.remembered) > 0 {
			if h.plan.Owners == nil {
				h.plan.Owners = map[string][]appsv1alpha1.OwnerPods{}
			}
			h.plan.Owners[name] = ownerPods(b.remembered)
		}
		if b.keepsRecent {
			if h.plan.Recent == nil {
				h.plan.Recent = map[string][]appsv1alpha1.RecentPermit{}
			}
			h.plan.Recent[name] = recentPermits(b.recent)
		}
	}
}

func sortedReservations(reserved map[types.UID]appsv1alpha1.ReservedPod) []appsv1alpha1.ReservedPod {
	return slices.SortedFunc(maps.Values(reserved), ByUID)
}

// ByUID is the order of reservations in a record.
func ByUID(a, b appsv1alpha1.ReservedPod) int { return strings.Compare(string(a.UID), string(b.UID)) }

// invalidateWithheld asks for the pods whose reservation holds a slot for nothing. One that
// was only not reached keeps it: its turn comes in the next round.
func (h *allocation) invalidateWithheld() {
	held := map[types.UID]bool{}
	for _, b := range h.budgets {
		for uid := range b.live {
			if !h.granted[uid] && !h.unreached[uid] {
				held[uid] = true
			}
		}
	}
	h.plan.Invalidate = slices.Sorted(maps.Keys(held))
}
