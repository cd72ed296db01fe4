package permit

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// Recheck evaluates one rule again for one request, given what has been taken. An outcome other
// than Passed refuses. It returns false when there is no time left in this round; the
// request is refused with CodeNotReached then.
type Recheck func(rule rule.RuleID, request rule.Request, taken Committed) (rule.Verdict, bool)

// Committed is what a rule has to reckon with beyond the facts of the view. It is only
// valid during the call, and must not be modified.
type Committed struct {
	// Pods hold a live reservation, or were granted a PreCheck permit earlier in this
	// round, under whatever PodTransitionRule: they may become unavailable at any
	// moment. The pod that asks may be among them.
	Pods map[types.UID]bool

	// Reserved is to be added to rule.Counts.Reserved of the PodTransitionRule of the
	// rule: the available pods that were newly reserved under it in this round, less the
	// pod that asks if it is reserved itself. So it may be -1.
	Reserved int

	// Permits are all that the rule is to see, oldest first: those of Budget.Recent,
	// and those that this round adds. What was recorded for the pod that asks is
	// missing while it is only reserved: the permit that is asked for is that very one.
	// Empty unless the budget of the rule's object has KeepsRecent.
	Permits []rule.Permit
}

// judged asks the judges of a request in turn, and returns the first refusal. Without a
// Judge nobody passes one.
func (h *allocation) rechecked(c Candidate) (Denial, bool) {
	for _, id := range c.Rechecked {
		verdict, reached := rule.Verdict{}, false
		if h.judge != nil {
			verdict, reached = h.judge(id, c.Request, h.takenFor(id, c.Request.Pod))
		}
		if reached {
			h.first = cmp.Or(h.first, c.Request.Pod.UID)
		} else {
			verdict = rule.Verdict{Code: rule.CodeNotReached}
			h.unreached[c.Request.Pod.UID] = true
		}
		if verdict.Outcome != rule.Passed {
			return Denial{Request: c.Request, Rule: id, Verdict: verdict}, true
		}
	}
	return Denial{}, false
}

func (h *allocation) takenFor(rule rule.RuleID, pod *rule.PodFact) Committed {
	taken := Committed{Pods: h.taken}
	b, ok := h.budgets[rule.Object.Name]
	if !ok {
		return taken
	}
	taken.Reserved = b.newlyReserved
	if b.keepsRecent {
		taken.Permits = b.recent
	}
	if !hasUID(b.reserved, pod.UID) {
		return taken
	}
	if pod.Available {
		taken.Reserved--
	}
	taken.Permits, _ = withoutLast(taken.Permits, pod.Name)
	return taken
}

// openBudget is a Budget while it is handed out.
type openBudget struct {
	slots     map[string]int
	live      map[types.UID]appsv1alpha1.ReservedPod
	reserved  map[types.UID]appsv1alpha1.ReservedPod
	rechecked bool

	owners     map[types.UID]int
	remembered map[types.UID]int

	keepsRecent bool
	recent      []rule.Permit

	// newlyReserved counts the available pods among the new reservations.
	newlyReserved int

	// changed: the record has to be written before anybody is stamped.
	changed bool
}

// records reports whether a permit of the pod has to be in the record.
func (b *openBudget) records(pod *rule.PodFact) bool {
	return pod.Available || b.rechecked || b.countsOwner(pod)
}
