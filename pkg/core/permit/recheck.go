package permit

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Recheck evaluates one rule again for one request, given the committed pods. An outcome other
// than Passed denies the request. It returns false when no time is left in this round; the
// request is denied with CodeNotReached then.
type Recheck func(rule rule.RuleID, request rule.Request, committed Committed) (rule.Verdict, bool)

// Committed is the part of a rule's input that the view does not contain. It is only valid
// during the call, and must not be modified.
type Committed struct {
	// Pods hold a live reservation, or were granted a PreCheck permit earlier in this
	// round, under any PodTransitionRule: they may become unavailable at any moment. The
	// candidate itself may be among them.
	Pods map[types.UID]bool

	// Reserved is added to rule.Counts.Reserved of the rule's PodTransitionRule: the
	// available pods that this round reserved under it, less the candidate and the pods
	// that go with it if it is reserved itself. So it may be below 0.
	Reserved int

	// Permits are all that the rule sees, oldest first: Budget.Recent, and the permits that this
	// round adds. The recorded permit of the candidate is missing while the pod is only reserved,
	// because the rule decides about that very permit. Empty unless the budget of the
	// PodTransitionRule has KeepsRecent.
	Permits []rule.Permit
}

// rechecked evaluates the rules of a request in turn, and returns the first denial. Without a
// Recheck it denies every request that has such rules.
func (a *allocation) rechecked(c Candidate) (Denial, bool) {
	for _, id := range c.Rechecked {
		verdict, reached := rule.Verdict{}, false
		if a.recheck != nil {
			verdict, reached = a.recheck(id, c.Request, a.committedFor(id, c))
		}
		if reached {
			a.first = cmp.Or(a.first, c.Request.Pod.UID)
		} else {
			verdict = rule.Verdict{Code: rule.CodeNotReached}
			a.unreached[c.Request.Pod.UID] = true
		}
		if denial := (Denial{Request: c.Request, Rule: id, Verdict: verdict}); verdict.Outcome != rule.Passed && !a.waives(c, denial) {
			return denial, true
		}
	}
	return Denial{}, false
}

func (a *allocation) committedFor(rule rule.RuleID, c Candidate) Committed {
	committed, pod := Committed{Pods: a.committed}, c.Request.Pod
	b, ok := a.budgets[rule.Ruleset.Name]
	if !ok {
		return committed
	}
	committed.Reserved = b.newlyReserved
	if b.keepsRecent {
		committed.Permits = b.recent
	}
	if !hasUID(b.reserved, pod.UID) {
		return committed
	}
	committed.Reserved -= b.size(c)
	committed.Permits, _ = withoutLast(committed.Permits, pod.Name)
	return committed
}

// openBudget is a Budget during an allocation.
type openBudget struct {
	ruleset   string
	slots     map[string]int
	live      map[types.UID]appsv1alpha1.ReservedPod
	reserved  map[types.UID]appsv1alpha1.ReservedPod
	rechecked bool

	// disruption is true for a PodDisruptionBudget.
	disruption bool

	owners     map[types.UID]int
	remembered map[types.UID]int

	keepsRecent bool
	recent      []rule.Permit

	// newlyReserved counts the available pods among the new reservations.
	newlyReserved int

	// changed is true if the record must be written before any pod is stamped.
	changed bool
}

// mustRecord reports whether the record must contain a permit of the pod.
func (b *openBudget) mustRecord(c Candidate) bool {
	return b.size(c) > 0 || b.rechecked || b.countsOwner(c.Request.Pod)
}

// size returns the number of slots that a permit takes: of the pod if it counts, and of the pods that go
// with it.
func (b *openBudget) size(c Candidate) int {
	pod, size := c.Request.Pod, c.With[b.ruleset]
	if b.disruption && pod.Ready || !b.disruption && pod.Available {
		size++
	}
	return size
}
