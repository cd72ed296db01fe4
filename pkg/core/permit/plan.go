package permit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Budget contains the slots and the record of one PodTransitionRule that has an
// availablePolicy, or a rule that depends on other pods; or of one PodDisruptionBudget.
type Budget struct {
	// Ruleset is the name of the PodTransitionRule, or RuleID.String of the PodDisruptionBudget.
	Ruleset string

	// Disruption is true for a PodDisruptionBudget, which counts the pods that are Ready instead of
	// the pods that are available.
	Disruption bool

	// Slots that each of its availability rules may allocate, by rule name. Live
	// reservations are already subtracted; the number is below zero when they leave too few
	// pods available, because pods failed after the reservations were made. Empty when the
	// PodTransitionRule has no such rule.
	Slots map[string]int

	// Live are the reservations that may still be stamped, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod

	// Sequential is true if a rule depends on other pods or on recent permits. Every
	// PreCheck permit is recorded then, including the permit of an unavailable pod, which
	// takes no slot but is an input for the rules of other pods.
	Sequential bool

	// KeepsRecent is true if a rule reads the recent permits, so that the record lists
	// them.
	KeepsRecent bool

	// Owners are the pod numbers of workloads whose desired number is unknown, by UID. Before
	// any pod of such a workload, available or not, gets a PreCheck permit, the number is
	// recorded: the deletion of a pod must not lower the bound for the next pod.
	Owners map[types.UID]int

	// Remembered are the numbers of pods in the record that still count.
	Remembered map[types.UID]int

	// Inherited is true if Live and Recent come from a record that the stored object does not have,
	// as after the deletion of an object with the same name, so that its own record must be written before any
	// pod is stamped.
	Inherited bool

	// Recent are the permits that the record lists, oldest first. Rules see them if
	// KeepsRecent is set.
	Recent []rule.Permit
}

// Candidate is a waiting request that passed every rule except the rules of Needs and Rechecked.
type Candidate struct {
	Request rule.Request

	// Needs are the rules and PodDisruptionBudgets from which the request needs a slot. Sorted.
	Needs []rule.RuleID

	// Waived are rules and PodDisruptionBudgets that the request passes even if they deny it. Its
	// slots are taken all the same.
	Waived []rule.RuleID

	// Budgets are all PodTransitionRules with a budget and PodDisruptionBudgets that select the
	// pod (Budget.Ruleset), whether or not a rule of theirs applies to this request: a permit makes
	// the pod unavailable for all of them. Sorted.
	Budgets []string

	// Rechecked are the rules to evaluate again, given the pods that are committed before
	// this request. Sorted. If such a rule is enforced in PreCheck, the Budget of its
	// PodTransitionRule has Sequential set. For a pod already in that record, Next is the only
	// place that evaluates the rule, because elsewhere the rule's input would contain the pod's
	// own permit.
	Rechecked []rule.RuleID

	// With are the numbers of available pods that go with the pod, by the budget (Budget.Ruleset) that
	// counts them. A permit takes their slots as well, and is one permit: all of them, or none.
	With map[string]int

	// Missed is the number of successive rounds without a turn for the pod (Plan.Missed).
	Missed int

	// Absent is true if no client waits for the permit. The request keeps its place, and its slots for as long as it does.
	Absent bool
}

// Denial names the rule that denies a permit to a candidate.
type Denial struct {
	Request rule.Request

	// Rule that denies. Its name within the PodTransitionRule is empty when the record is
	// full: no rule denies, and the remaining pods follow in the next batch.
	Rule rule.RuleID

	// Verdict of a rechecked rule. Its code is CodeNoRoom when a slot was missing, and
	// CodeNotReached when no time was left to evaluate the rule.
	Verdict rule.Verdict
}

// Plan contains the next permits, and the records to write before them.
type Plan struct {
	// Grants may be stamped, after the records that contain them have been written.
	Grants []rule.Request

	// Reserve are the complete new lists of reservations, by name, of the budgets
	// to whose record something was added. The other records stay as they are.
	Reserve map[string][]appsv1alpha1.ReservedPod

	// Recent are the complete lists of recent permits, oldest first, by name, of all
	// PodTransitionRules that keep such a list: the old list, and the pods that
	// Reserve adds.
	Recent map[string][]appsv1alpha1.RecentPermit

	// Owners are the complete lists of pod numbers to remember, sorted, by name, of
	// all PodTransitionRules that have any.
	Owners map[string][]appsv1alpha1.OwnerPods

	// NeedsRecords names, per UID, the budgets whose record must hold the pod
	// before it is stamped. Pods that need no record are missing.
	NeedsRecords map[types.UID][]string

	// Denied are the candidates that wait for a slot, or for other pods.
	Denied []Denial

	// Absent are the candidates that would be granted if their clients waited.
	Absent []rule.Request

	// Waived are the denials of waived rules, of requests that were granted.
	Waived []Denial

	// Missed are the pods whose rules were not all rechecked for lack of time, with the number
	// of successive rounds without a turn. The pods that missed the most rounds come first in the
	// next round. A pod that comes first has had its turn, even if its rules take longer than a
	// round.
	Missed map[types.UID]int

	// Invalidate are pods that hold a live reservation and are withheld: they must be
	// written, so that the reservation becomes dead. Sorted.
	Invalidate []types.UID
}

// Next allocates the slots of the budgets to the candidates: first to candidates without a turn
// in earlier rounds, then to pods that are already reserved, then in the order in which they
// began to wait. The rules of a request that has its slots are rechecked one after the other,
// each with the pods that are committed by then; a slot is only taken when all of these rules
// pass. now is the time of the permits. Next never changes its arguments, and does not depend
// on the order of candidates, provided that recheck is a function of its own arguments.
func Next(budgets []Budget, candidates []Candidate, recheck Recheck, now time.Time) Plan {
	a := newAllocation(budgets, recheck, now)
	for _, pod := range byPod(candidates, a) {
		a.allocate(pod)
	}
	a.fillRecords()
	a.invalidateWithheld()
	a.missed(candidates)
	return a.plan
}

// allocation is the working state of one Next.
type allocation struct {
	budgets map[string]*openBudget
	recheck Recheck
	now     time.Time

	// granted are the pods with a PreCheck permit of this round.
	granted map[types.UID]bool

	// committed are the pods that are granted, or hold a live reservation.
	committed map[types.UID]bool

	// unreached are the pods that were denied only for lack of time.
	unreached map[types.UID]bool

	// first is the first pod with a rechecked rule; empty before that.
	first types.UID

	// waived are the denials by waived rules for the request that is allocated.
	waived []Denial

	plan Plan
}

func newAllocation(budgets []Budget, recheck Recheck, now time.Time) *allocation {
	a := &allocation{
		budgets: map[string]*openBudget{}, recheck: recheck, now: ceilSecond(now),
		granted: map[types.UID]bool{}, committed: map[types.UID]bool{}, unreached: map[types.UID]bool{},
	}
	for _, b := range budgets {
		a.budgets[b.Ruleset] = &openBudget{
			ruleset: b.Ruleset,
			slots:   maps.Clone(b.Slots), live: b.Live, reserved: maps.Clone(b.Live), changed: b.Inherited,
			owners: b.Owners, remembered: maps.Clone(b.Remembered),
			disruption: b.Disruption, rechecked: b.Sequential, keepsRecent: b.KeepsRecent, recent: slices.Clip(b.Recent),
		}
		for uid := range b.Live {
			a.committed[uid] = true
		}
	}
	return a
}

// missed counts the successive rounds without a turn.
func (a *allocation) missed(candidates []Candidate) {
	for _, c := range candidates {
		uid := c.Request.Pod.UID
		if !a.unreached[uid] || uid == a.first {
			continue
		}
		if a.plan.Missed == nil {
			a.plan.Missed = map[types.UID]int{}
		}
		a.plan.Missed[uid] = max(a.plan.Missed[uid], c.Missed+1)
	}
}

// byPod groups the candidates by pod. Pods that missed their turn come first, then pods with a live
// reservation, then the oldest request, then the name; the requests of a pod have the same order.
func byPod(candidates []Candidate, a *allocation) [][]Candidate {
	groups := map[types.UID][]Candidate{}
	for _, c := range candidates {
		groups[c.Request.Pod.UID] = append(groups[c.Request.Pod.UID], c)
	}
	pods := slices.Collect(maps.Values(groups))
	for _, pod := range pods {
		slices.SortFunc(pod, func(x, y Candidate) int {
			return cmp.Or(x.Request.Since.Compare(y.Request.Since), strings.Compare(x.Request.Key(), y.Request.Key()))
		})
	}
	slices.SortFunc(pods, func(x, y []Candidate) int {
		first, second := x[0].Request, y[0].Request
		return cmp.Or(
			cmp.Compare(missed(y), missed(x)),
			cmp.Compare(a.rank(first.Pod.UID), a.rank(second.Pod.UID)),
			first.Since.Compare(second.Since),
			strings.Compare(first.Pod.Name, second.Pod.Name),
			strings.Compare(string(first.Pod.UID), string(second.Pod.UID)),
		)
	})
	return pods
}

// missed returns the largest number of rounds without a turn among the requests of a pod.
func missed(pod []Candidate) int {
	most := 0
	for _, c := range pod {
		most = max(most, c.Missed)
	}
	return most
}

// rank returns 0 for pods that hold a reservation and 1 for all others.
func (a *allocation) rank(uid types.UID) int {
	for _, b := range a.budgets {
		if _, ok := b.live[uid]; ok {
			return 0
		}
	}
	return 1
}

// allocate grants the requests of one pod that pass. They share one slot: the pod goes
// offline once.
func (a *allocation) allocate(pod []Candidate) {
	for _, c := range pod {
		a.waived = nil
		if denial, denied := a.deny(c); denied {
			a.plan.Denied = append(a.plan.Denied, denial)
			continue
		}
		if c.Absent && !a.granted[c.Request.Pod.UID] {
			a.keepPlace(c)
			continue
		}
		// A PostCheck permit brings the pod back, so it takes no slot.
		if c.Request.Stage != appsv1alpha1.StagePostCheck {
			a.commit(c)
		}
		a.plan.Grants = append(a.plan.Grants, c.Request)
		a.plan.Waived = append(a.plan.Waived, a.waived...)
	}
}

// keepPlace takes the slots of a request that nothing denies and that gets no permit, in this round alone.
func (a *allocation) keepPlace(c Candidate) {
	a.plan.Absent = append(a.plan.Absent, c.Request)
	for _, name := range c.Budgets {
		if b, ok := a.budgets[name]; ok && !hasUID(b.live, c.Request.Pod.UID) {
			b.take(c)
		}
	}
}

// noRoom is the denial by a rule without a slot.
func noRoom(c Candidate, id rule.RuleID) Denial {
	return Denial{Request: c.Request, Rule: id, Verdict: rule.Verdict{Code: rule.CodeNoRoom}}
}

// waives reports whether the rule of a denial is waived, and keeps the denial then.
func (a *allocation) waives(c Candidate, denial Denial) bool {
	if !slices.Contains(c.Waived, denial.Rule) {
		return false
	}
	a.waived = append(a.waived, denial)
	return true
}

// deny returns why a request gets no permit now, and whether that is so. It commits nothing.
func (a *allocation) deny(c Candidate) (Denial, bool) {
	if c.Request.Stage != appsv1alpha1.StagePostCheck && !a.granted[c.Request.Pod.UID] {
		if id, lacking := a.lacking(c); lacking {
			return noRoom(c, id), true
		}
	}
	return a.rechecked(c)
}

// lacking returns the first rule that has too few slots for the request. A pod that is unavailable needs
// no slot, unless available pods go with it, and a reserved pod already has its slot, as long as the rule does not have too few pods
// without it. A full record denies every pod that it would have to hold: the rule name is empty
// then, and the remaining pods follow in the next batch.
func (a *allocation) lacking(c Candidate) (rule.RuleID, bool) {
	pod := c.Request.Pod
	for _, need := range c.Needs {
		b, ok := a.budgets[budgetName(need)]
		if !ok && pod.Available {
			return need, true
		}
		if !ok || b.size(c) == 0 {
			continue
		}
		slots := b.slots[need.Rule]
		if slots >= 0 && (slots >= b.size(c) || hasUID(b.live, pod.UID)) || a.waives(c, noRoom(c, need)) {
			continue
		}
		return need, true
	}
	for _, name := range c.Budgets {
		b, ok := a.budgets[name]
		if ok && b.full(c) {
			return rule.RuleID{Ruleset: types.NamespacedName{Namespace: pod.Namespace, Name: name}}, true
		}
	}
	return rule.RuleID{}, false
}

// budgetName returns the name of a rule's budget.
func budgetName(id rule.RuleID) string {
	if id.IsDisruptionBudget() {
		return id.String()
	}
	return id.Ruleset.Name
}

func hasUID(reserved map[types.UID]appsv1alpha1.ReservedPod, uid types.UID) bool {
	_, ok := reserved[uid]
	return ok
}

// commit records the pod in every budget that must record it, the first time that one of its
// requests is granted.
func (a *allocation) commit(c Candidate) {
	pod := c.Request.Pod
	if a.granted[pod.UID] {
		return
	}
	a.granted[pod.UID], a.committed[pod.UID] = true, true
	for _, name := range c.Budgets {
		b, ok := a.budgets[name]
		if !ok || !b.mustRecord(c) {
			continue
		}
		if a.plan.NeedsRecords == nil {
			a.plan.NeedsRecords = map[types.UID][]string{}
		}
		a.plan.NeedsRecords[pod.UID] = append(a.plan.NeedsRecords[pod.UID], name)
		b.commit(c, a.now)
	}
}

// fillRecords sets the lists of the records to which something was added, and the recent permits of
// the records that keep them.
func (a *allocation) fillRecords() {
	for name, b := range a.budgets {
		if b.changed {
			if a.plan.Reserve == nil {
				a.plan.Reserve = map[string][]appsv1alpha1.ReservedPod{}
			}
			a.plan.Reserve[name] = sortedReservations(b.reserved)
		}
		if len(b.remembered) > 0 {
			if a.plan.Owners == nil {
				a.plan.Owners = map[string][]appsv1alpha1.OwnerPods{}
			}
			a.plan.Owners[name] = ownerPods(b.remembered)
		}
		if b.keepsRecent {
			if a.plan.Recent == nil {
				a.plan.Recent = map[string][]appsv1alpha1.RecentPermit{}
			}
			a.plan.Recent[name] = recentPermits(b.recent)
		}
	}
}

func sortedReservations(reserved map[types.UID]appsv1alpha1.ReservedPod) []appsv1alpha1.ReservedPod {
	return slices.SortedFunc(maps.Values(reserved), ByUID)
}

// ByUID compares reservations in the order of a record.
func ByUID(a, b appsv1alpha1.ReservedPod) int { return strings.Compare(string(a.UID), string(b.UID)) }

// invalidateWithheld lists the pods whose reservation occupies a slot in vain. A pod that was
// only not reached keeps its reservation for the next round.
func (a *allocation) invalidateWithheld() {
	held := map[types.UID]bool{}
	for _, b := range a.budgets {
		for uid := range b.live {
			if !a.granted[uid] && !a.unreached[uid] {
				held[uid] = true
			}
		}
	}
	a.plan.Invalidate = slices.Sorted(maps.Keys(held))
}
