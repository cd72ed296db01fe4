package podindex

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ripens records when a pod with the label service-available becomes available for its controller: once it
// has been Ready for minReadySeconds. Times that have come by the last Expire are not recorded.
func (n *namespace) ripens(p *pod, now time.Time) {
	delete(n.ripening, p.fact.UID)
	least := n.owners[p.controller.UID].MinReady
	if due := p.readySince.Add(least); least > 0 && p.fact.Available && due.After(now) {
		if n.ripening == nil {
			n.ripening = map[types.UID]time.Time{}
		}
		n.ripening[p.fact.UID] = due
	}
}

// ripen drops the pods that have become available by now, and returns when the next one does; zero for never.
func (n *namespace) ripen(now time.Time) (next time.Time) {
	for uid, due := range n.ripening {
		switch {
		case !due.After(now):
			delete(n.ripening, uid)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return next
}

// countRipening counts the pods that have not been Ready for minReadySeconds as unavailable in the view of a
// rule. A permit of such a pod takes a slot all the same: its traffic is on.
func (n *namespace) countRipening(r *ruleset, view *RuleView, led groups) {
	for uid := range n.ripening {
		_, live := view.Live[uid]
		if p := r.selected[uid]; p == nil || !p.fact.Available || led.going[uid] {
			continue
		}
		view.Counts.Available--
		if live {
			view.Counts.Reserved--
		}
	}
}
