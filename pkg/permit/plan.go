package permit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// Budget is what one PodTransitionRule with an availablePolicy has to give.
type Budget struct {
	// Object is the PodTransitionRule.
	Object string

	// Slots that each of its availability rules may hand out, by rule name. Live
	// reservations are already taken off.
	Slots map[string]int

	// Live are the reservations that may still be stamped, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod
}

// Candidate is a waiting request that every rule lets pass, or would with a slot.
type Candidate struct {
	Request policy.Request

	// Needs are the rules of which the request needs a slot. Sorted.
	Needs []policy.RuleID

	// Budgets are the names of all PodTransitionRules with a budget that select the
	// pod, whether or not a rule of theirs applies to this request: a permit makes
	// the pod unavailable for all of them. Sorted.
	Budgets []string
}

// Refusal says which rule had no slot left for a request.
type Refusal struct {
	Request policy.Request
	Rule    policy.RuleID
}

// Plan is what to do next.
type Plan struct {
	// Grants may be stamped, after the records they are in have been written.
	Grants []policy.Request

	// Reserve are the complete new lists of reservations of the objects to which
	// something was added, by name. Objects that are missing stay as they are.
	Reserve map[string][]appsv1alpha1.ReservedPod

	// NeedsRecords names, per UID, the objects whose record must hold the pod before
	// it is stamped. Pods that take no slot are missing.
	NeedsRecords map[types.UID][]string

	// Refused wait for a slot.
	Refused []Refusal

	// Touch are pods that hold a live reservation and are withheld: they have to be
	// written, so that the reservation dies. Sorted.
	Touch []types.UID
}

// Next hands out the slots of the budgets to the candidates: first to pods that are
// reserved already, then in the order in which they began to wait. It never changes
// its arguments, and does not depend on the order of candidates.
func Next(budgets []Budget, candidates []Candidate) Plan {
	h := newHandOut(budgets)
	for _, pod := range byPod(candidates, h) {
		h.give(pod)
	}
	h.reservations()
	h.touchWithheld()
	return h.plan
}

// handOut is the working state of one Next.
type handOut struct {
	budgets map[string]*openBudget
	granted map[types.UID]bool
	plan    Plan
}

type openBudget struct {
	slots    map[string]int
	live     map[types.UID]appsv1alpha1.ReservedPod
	reserved map[types.UID]appsv1alpha1.ReservedPod
}

func newHandOut(budgets []Budget) *handOut {
	h := &handOut{budgets: map[string]*openBudget{}, granted: map[types.UID]bool{}}
	for _, b := range budgets {
		h.budgets[b.Object] = &openBudget{slots: maps.Clone(b.Slots), live: b.Live, reserved: maps.Clone(b.Live)}
	}
	return h
}

// byPod groups the candidates by pod. Pods with a live reservation come first, then
// the oldest request, then the name; the requests of a pod are sorted alike.
func byPod(candidates []Candidate, h *handOut) [][]Candidate {
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
			cmp.Compare(h.rank(first.Pod.UID), h.rank(second.Pod.UID)),
			first.Since.Compare(second.Since),
			strings.Compare(first.Pod.Name, second.Pod.Name),
			strings.Compare(string(first.Pod.UID), string(second.Pod.UID)),
		)
	})
	return pods
}

// rank is 0 for pods that hold a reservation and 1 for all others.
func (h *handOut) rank(uid types.UID) int {
	for _, b := range h.budgets {
		if _, ok := b.live[uid]; ok {
			return 0
		}
	}
	return 1
}

// give grants what it can of one pod's requests. They share one slot: the pod goes
// offline once.
func (h *handOut) give(pod []Candidate) {
	for _, c := range pod {
		fact := c.Request.Pod
		if c.Request.Stage == appsv1alpha1.StagePostCheck {
			// It brings the pod back. Nothing is taken.
			h.plan.Grants = append(h.plan.Grants, c.Request)
			continue
		}
		if fact.Available && !h.granted[fact.UID] {
			if rule, short := h.short(c); short {
				h.plan.Refused = append(h.plan.Refused, Refusal{Request: c.Request, Rule: rule})
				continue
			}
			h.reserve(c)
		}
		h.granted[fact.UID] = true
		h.plan.Grants = append(h.plan.Grants, c.Request)
	}
}

// short returns the first rule that the request needs a slot of and that has none. A
// pod that is reserved already has its slot. A full record stops everybody: the rule
// name is empty then, and the rest follows in the next batch.
func (h *handOut) short(c Candidate) (policy.RuleID, bool) {
	for _, need := range c.Needs {
		b, ok := h.budgets[need.Object.Name]
		if !ok {
			return need, true
		}
		if hasUID(b.live, c.Request.Pod.UID) {
			continue
		}
		if b.slots[need.Rule] <= 0 {
			return need, true
		}
	}
	for _, name := range c.Budgets {
		b, ok := h.budgets[name]
		if ok && len(b.reserved) >= appsv1alpha1.MaxStatusReserved && !hasUID(b.live, c.Request.Pod.UID) {
			return policy.RuleID{Object: types.NamespacedName{Namespace: c.Request.Pod.Namespace, Name: name}}, true
		}
	}
	return policy.RuleID{}, false
}

func hasUID(reserved map[types.UID]appsv1alpha1.ReservedPod, uid types.UID) bool {
	_, ok := reserved[uid]
	return ok
}

func (h *handOut) reserve(c Candidate) {
	fact := c.Request.Pod
	for _, name := range c.Budgets {
		b, ok := h.budgets[name]
		if !ok {
			continue
		}
		if h.plan.NeedsRecords == nil {
			h.plan.NeedsRecords = map[types.UID][]string{}
		}
		h.plan.NeedsRecords[fact.UID] = append(h.plan.NeedsRecords[fact.UID], name)
		if hasUID(b.live, fact.UID) {
			continue
		}
		for rule := range b.slots {
			b.slots[rule]--
		}
		if b.reserved == nil {
			b.reserved = map[types.UID]appsv1alpha1.ReservedPod{}
		}
		b.reserved[fact.UID] = appsv1alpha1.ReservedPod{UID: fact.UID, Name: fact.Name, ResourceVersion: fact.ResourceVersion}
	}
}

// reservations fills in the lists of the objects to which something was added.
func (h *handOut) reservations() {
	for name, b := range h.budgets {
		if len(b.reserved) == len(b.live) {
			continue
		}
		if h.plan.Reserve == nil {
			h.plan.Reserve = map[string][]appsv1alpha1.ReservedPod{}
		}
		h.plan.Reserve[name] = sortedReservations(b.reserved)
	}
}

func sortedReservations(reserved map[types.UID]appsv1alpha1.ReservedPod) []appsv1alpha1.ReservedPod {
	return slices.SortedFunc(maps.Values(reserved), ByUID)
}

// ByUID is the order of reservations in a record.
func ByUID(a, b appsv1alpha1.ReservedPod) int { return strings.Compare(string(a.UID), string(b.UID)) }

func (h *handOut) touchWithheld() {
	held := map[types.UID]bool{}
	for _, b := range h.budgets {
		for uid := range b.live {
			if !h.granted[uid] {
				held[uid] = true
			}
		}
	}
	h.plan.Touch = slices.Sorted(maps.Keys(held))
}
