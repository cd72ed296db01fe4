package podtransitionrule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/sim"
)

func (w *simulation) drawReplica(t *rapid.T) int {
	return rapid.IntRange(0, len(w.replicas)-1).Draw(t, "replica")
}

// WatchPods delivers some events of pods to one replica.
func (w *simulation) WatchPods(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	r.watchPods(drawEvents(t, len(w.server.podHistory)-r.pods))
}

// WatchRules delivers some events of rules to one replica.
func (w *simulation) WatchRules(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	r.watchRules(drawEvents(t, len(w.server.ruleHistory)-r.rules))
}

// drawEvents returns how many of the events that a replica has not seen get through.
func drawEvents(t *rapid.T, left int) int {
	if left == 0 {
		t.Skip("it has seen everything")
	}
	return left - min(left, drawLag(t))
}

// drawLag is how many events of a history do not get through yet.
func drawLag(t *rapid.T) int { return rapid.SampledFrom([]int{0, 0, 1, 2, 5, 20}).Draw(t, "lag") }

// WatchAll delivers everything to one replica.
func (w *simulation) WatchAll(t *rapid.T) { w.replicas[w.drawReplica(t)].catchUp() }

// WatchOwners delivers the workloads to one replica.
func (w *simulation) WatchOwners(t *rapid.T) { w.replicas[w.drawReplica(t)].setOwners() }

// Relist breaks the watch of one replica: it lists, from a cache that is behind.
func (w *simulation) Relist(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	left := len(w.server.podHistory) - r.pods
	r.list(len(w.server.podHistory) - min(left, drawLag(t)))
}

// Round runs a round of one replica to its end.
func (w *simulation) Round(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	if !r.running && !r.queued && r.due.IsZero() {
		t.Skip("nothing is queued")
	}
	r.finish()
}

// FreshRound is one that has seen everything.
func (w *simulation) FreshRound(t *rapid.T) {
	r := w.replicas[w.drawReplica(t)]
	if !r.running {
		r.catchUp()
	}
	r.finish()
}

// Step opens a round of one replica, or decides over one write of it.
func (w *simulation) Step(t *rapid.T) {
	i := w.drawReplica(t)
	r := w.replicas[i]
	if !r.running && !r.queued && r.due.IsZero() {
		t.Skip("nothing is queued")
	}
	if !r.running {
		r.start()
		return
	}
	w.resume(t, i, rapid.SampledFrom(fates()).Draw(t, "fate"))
}

// Race lets all replicas make a round at once, each from the objects that it has seen by then.
func (w *simulation) Race(t *rapid.T) {
	for i, r := range w.replicas {
		pods, rules := len(w.server.podHistory)-r.pods, len(w.server.ruleHistory)-r.rules
		r.watchPods(pods - min(pods, drawLag(t)))
		r.watchRules(rules - min(rules, drawLag(t)/4))
		if !w.replicas[i].running {
			r.start()
		}
	}
	for {
		var open []int
		for i, r := range w.replicas {
			if r.running {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return
		}
		w.resume(t, rapid.SampledFrom(open).Draw(t, "replica"), rapid.SampledFrom(fates()).Draw(t, "fate"))
	}
}

// resume decides over a write, and starts a new process in place of one that died.
func (w *simulation) resume(t *rapid.T, i int, f fate) {
	w.replicas[i].resume(f)
	if f == fateKilled || f == fateKilling {
		w.seen.killed++
		pods, rules := len(w.server.podHistory), len(w.server.ruleHistory)
		// A replica cannot respect a rule that its watch has not delivered.
		w.replicas[i] = newReplica(w, pods-min(pods, drawLag(t)), max(w.born, rules-drawLag(t)))
	}
}

// Late lets a write arrive whose client gave up on it.
func (w *simulation) Late(t *rapid.T) {
	if len(w.late) == 0 {
		t.Skip("nothing is under way")
	}
	i := rapid.IntRange(0, len(w.late)-1).Draw(t, "late")
	apply := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	if apply() == nil {
		w.seen.late++
	}
}

// SetClock sets the clock of the machine, for replicas that start from now on.
func (w *simulation) SetClock(t *rapid.T) {
	w.skew = rapid.SampledFrom([]time.Duration{-time.Hour, -time.Second, 0, time.Second, time.Hour}).Draw(t, "skew")
}

// Pass lets some time pass between two actions.
func (w *simulation) Pass(t *rapid.T) {
	w.marks = append(w.marks, ruleMark{w.now, len(w.server.ruleHistory)})
	w.now = w.now.Add(statusInterval / 3)
	w.deliverOldRules()
	w.deliverOldCounts()
	w.checkRecords(t)
}

// deliverOldRules delivers the events of rules that a watch may not be behind by.
func (w *simulation) deliverOldRules() {
	for len(w.marks) > 0 && w.now.Sub(w.marks[0].at) >= podindex.RetiredFor-2*statusInterval {
		w.born = max(w.born, w.marks[0].events)
		w.marks = w.marks[1:]
	}
	for _, r := range w.replicas {
		r.watchRules(max(0, w.born-r.rules))
	}
}

// settleRounds bounds how long it takes until no component has anything left to do. A pod
// takes at most: a round that frees a leftover slot, one to be permitted,
// one to write the postponed statuses. Pods are permitted in batches, not one by one, but
// what a pod waits for is written to one pod in a round.
const settleRounds = 48

// settle ends all faults: requests under way arrive, one replica is left, and its
// watches catch up. Rounds are only made when the queue of the controller has one.
// Then no pod waits that might pass, and no slot is held in vain.
func (w *simulation) settle(t *rapid.T) {
	for len(w.late) > 0 {
		w.Late(t)
	}
	leader := w.replicas[w.drawReplica(t)]
	for _, r := range w.replicas {
		if r != leader {
			r.die()
		}
	}
	w.replicas = []*replica{leader}
	if leader.running {
		leader.finish()
	}
	leader.catchUp()
	w.now = w.now.Add(podindex.RetiredFor)
	waited := false
	for range settleRounds {
		w.now = w.now.Add(2 * statusInterval)
		acted := w.others()
		acted = w.countDisruptions() || acted
		leader.setOwners()
		leader.catchUp()
		if !leader.queued && (leader.due.IsZero() || leader.due.After(w.now)) {
			switch {
			case acted:
			case !w.quiet && !waited:
				// A pod that moved to another rule is missing for a while.
				w.now, waited = w.now.Add(evaluation.MissingFor), true
			default:
				w.checkSettled(t)
				return
			}
			continue
		}
		leader.finish()
	}
	t.Fatalf("after %d rounds there is still something to do", settleRounds)
}

func (w *simulation) checkSettled(t *rapid.T) {
	for _, name := range w.podNames(anyPod) {
		pod := w.server.pods[name]
		for _, waiting := range lifecycle.WaitingIDs(lifecycle.NewPodFacts(pod)) {
			if !w.isHeldBack(pod, waiting) {
				t.Fatalf("pod %s waits with id %s in %s, and no rule holds it back", name, waiting.ID, waiting.Stage)
			}
		}
	}
	versions := map[string]string{}
	for _, pod := range w.server.pods {
		versions[string(pod.UID)] = pod.ResourceVersion
	}
	w.checkRecordsOfBudgets(t, versions)
	for name, rule := range w.server.rules {
		if rule.Status.Permits == nil {
			continue
		}
		for _, reserved := range rule.Status.Permits.Reserved {
			if versions[string(reserved.UID)] == reserved.ResourceVersion && holdsSlot(rule) {
				t.Fatalf("rule %s holds a slot for pod %s, which is never permitted", name, reserved.Name)
			}
		}
	}
}

// checkRecordsOfBudgets fails if the record of a PodDisruptionBudget holds a slot in vain.
func (w *simulation) checkRecordsOfBudgets(t *rapid.T, versions map[string]string) {
	for name, budget := range w.server.budgets {
		record := podindex.NewDisruptionBudget(budget).Record
		if record == nil {
			continue
		}
		for _, reserved := range record.Reserved {
			if versions[string(reserved.UID)] == reserved.ResourceVersion {
				t.Fatalf("PodDisruptionBudget %s holds a slot for pod %s, which is never permitted", name, reserved.UID)
			}
		}
	}
}

// holdsSlot reports whether a reservation matters. A rule that bounds nothing any more keeps its
// record as it is.
func holdsSlot(rule *appsv1alpha1.PodTransitionRule) bool {
	return slices.ContainsFunc(rule.Spec.Rules, bounds)
}

// isHeldBack reports whether a rule or a PodDisruptionBudget has a reason to let a pod wait.
func (w *simulation) isHeldBack(pod *corev1.Pod, waiting lifecycle.Waiting) bool {
	if waiting.Stage == appsv1alpha1.StagePreCheck && sim.IsTrue(pod, corev1.PodReady) && w.disrupts(pod, 1) != "" {
		return true
	}
	if waiting.ID == appsv1alpha1.PodCreateID && !sim.IsTrue(pod, corev1.ContainersReady) {
		return true // a new pod has to run first
	}
	for _, object := range w.server.rules {
		selector := mustSelector(object.Spec.Selector)
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for _, rule := range object.Spec.Rules {
			isBroken := rule.AvailablePolicy == nil && rule.LabelCheck == nil
			switch {
			case rule.Stage != waiting.Stage:
			case isBroken:
				return true
			case !isSubject(rule, pod, waiting.Type):
			case rule.LabelCheck != nil && pod.Labels["go"] != "yes":
				return true
			case bounds(rule) && isServing(pod):
				truth := w.truth(selector)
				if truth.spare(rule.AvailablePolicy, w.wanted()) <= 0 {
					return true
				}
			}
		}
	}
	return false
}

// checkRecords checks the guarantee of package permit: a pod that may yet be permitted under a record
// counts, so that no record ever reserves more than there is.
func (w *simulation) checkRecords(t *rapid.T) {
	for name, rule := range w.server.rules {
		if rule.Status.Permits != nil && len(rule.Status.Permits.Reserved) > appsv1alpha1.MaxStatusReserved {
			t.Fatalf("rule %s reserves %d pods", name, len(rule.Status.Permits.Reserved))
		}
		if !permit.Reaches("99999999", rule.Status.Permits) {
			t.Fatalf("the record of rule %s requires a view that no replica reaches: %+v", name, rule.Status.Permits)
		}
	}
}
