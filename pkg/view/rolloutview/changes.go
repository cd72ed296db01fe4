package rolloutview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change is a pod that entered another phase, or that another rule or another reason withholds.
type Change struct {
	Time metav1.MicroTime `json:"time"`
	Pod  string           `json:"pod"`
	UID  string           `json:"uid"`

	// From is empty for a pod that was not there before, and To is Gone for a pod that is not there any more.
	From Phase `json:"from,omitempty"`
	To   Phase `json:"to"`

	// Withheld is the first reason for which a rule withholds the pod now.
	Withheld *Withheld `json:"withheld,omitempty"`

	// WaitsFor is an external change that the pod waits for now.
	WaitsFor string `json:"waitsFor,omitempty"`
}

// Changes returns the pods of a view that changed since another view, in the order of their names; pods that
// no longer exist come last. Numbers in messages are no change.
func Changes(before, after View) []Change {
	was := map[string]Pod{}
	for _, pod := range before.AllPods() {
		was[pod.UID] = pod
	}
	now := metav1.NewMicroTime(after.Time.Time)
	changes := []Change{}
	for _, pod := range after.AllPods() {
		old, known := was[pod.UID]
		delete(was, pod.UID)
		if known && old.Phase == pod.Phase && SameWait(Change{Withheld: old.Withheld, WaitsFor: old.WaitsFor}, pod) {
			continue
		}
		changes = append(changes, Change{
			Time: now, Pod: pod.Name, UID: pod.UID, From: old.Phase, To: pod.Phase, Withheld: pod.Withheld, WaitsFor: pod.WaitsFor,
		})
	}
	byName := func(a, b Change) int { return strings.Compare(a.Pod+a.UID, b.Pod+b.UID) }
	slices.SortFunc(changes, byName)
	gone := []Change{}
	for _, pod := range was {
		gone = append(gone, Change{Time: now, Pod: pod.Name, UID: pod.UID, From: pod.Phase, To: PhaseGone})
	}
	slices.SortFunc(gone, byName)
	return append(changes, gone...)
}

// SameWait reports whether a pod waits for the same as after a change. Numbers in messages do not count.
func SameWait(after Change, pod Pod) bool {
	return after.WaitsFor == pod.WaitsFor && sameReason(after.Withheld, pod.Withheld)
}

func sameReason(a, b *Withheld) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Rule == b.Rule && a.Reason == b.Reason
}

// String returns a change as a line: the time, the pod, the phases and the reason.
func (c Change) String() string {
	phases := string(c.To)
	if c.From != "" && c.From != c.To {
		phases = fmt.Sprintf("%s → %s", c.From, c.To)
	}
	line := fmt.Sprintf("%s  %s  %-23s", c.Time.Format(time.TimeOnly), c.Pod, phases)
	switch {
	case c.Withheld != nil:
		line += "  " + c.Withheld.Rule + ": " + c.Withheld.Message
	case c.WaitsFor != "":
		line += "  " + c.WaitsFor
	}
	return strings.TrimRight(line, " ")
}

// Summary returns the numbers of a view in one line, for where nothing is redrawn.
func (v View) Summary() string {
	line := fmt.Sprintf("%s/%s: %d of %d available, %d updated, %d unavailable", v.Kind, v.Name, v.Available, v.Desired, v.Updated, v.Unavailable)
	if v.Highest != nil {
		line += fmt.Sprintf(" (highest %d)", *v.Highest)
	}
	for _, budget := range v.Budgets {
		line += fmt.Sprintf("; %s %d of %d used", budget.Name, budget.Used, budget.Limit)
	}
	if v.Requests != nil {
		line += fmt.Sprintf("; requests %s, failed %s", thousands(v.Requests.Sent), thousands(v.Requests.Failed))
	}
	return line
}
