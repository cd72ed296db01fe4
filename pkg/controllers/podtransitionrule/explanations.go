package podtransitionrule

import (
	"context"
	"encoding/json"
	"hash"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// explainAfter is the time for which a pod waits before an annotation explains why. Most pods are
	// permitted sooner.
	explainAfter = 10 * time.Second

	// explanationInterval is the least time between two writes of an annotation because of its
	// numbers alone.
	explanationInterval = time.Minute

	// maxAnswers bounds the pods of a round whose verdict a client waits for.
	maxAnswers = 50

	// maxExplanations bounds these annotations of a pod, far below the bound of the API server for all
	// annotations.
	maxExplanations = 10
)

// explanation has the annotations of a pod that explain why it waits, the time at which they were last
// compared with its reasons, and the time of its last event.
type explanation struct {
	digest uint64
	at     time.Time
	event  time.Time
}

// explanations are the explanations of a namespace's waiting pods.
type explanations struct {
	pods map[types.UID]explanation

	// rollouts are the Deployments whose event was recorded, with the time at which a pod of them
	// last waited.
	rollouts map[string]time.Time

	// failed are the pods whose last write failed, with its time. The others come first, so that pods whose writes are
	// rejected each time hold up no other.
	failed map[types.UID]time.Time
}

// fair returns pods in the order in which they are written: as given, and after them by the time at which their last write
// failed. It also returns the failures of these pods.
func fair[P any](pods []P, uid func(P) types.UID, failures map[types.UID]time.Time) (sorted []P, failed map[types.UID]time.Time) {
	failed = map[types.UID]time.Time{}
	for _, pod := range pods {
		if at, ok := failures[uid(pod)]; ok {
			failed[uid(pod)] = at
		}
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b P) int { return failed[uid(a)].Compare(failed[uid(b)]) }), failed
}

// explain writes annotations to pods that have waited for a while, and at once to pods whose removal a client
// waits for in admission: the reasons, per PodTransitionRule. They are written when another rule withholds a
// pod, or for another reason; annotations of pods that do not wait any more are removed. The few writes that no
// client waits for take the background slot. With an annotation that has a new first reason an event is
// recorded, at most one a minute for each pod: after a restart the annotation shows which event was recorded. It
// returns the delay until the next write for pods that were postponed, or have not waited long enough; 0 for
// never.
func (r *Reconciler) explain(ctx context.Context, turn *turn, snapshot snapshot, o evaluation.Outcome) (wait time.Duration, err error) {
	defer turn.slot.release()
	now := r.clock.Now()
	waiting := waitingPods(snapshot, o)
	rollouts := groupRollouts(waiting)
	failures := snapshot.state.explanations.failed
	waiting, failed := fair(waiting, func(pod *withheldPod) types.UID { return pod.object.UID }, failures)
	left, failedLeft := fair(snapshot.Leftover, func(pod *corev1.Pod) types.UID { return pod.UID }, failures)
	maps.Copy(failed, failedLeft)
	most := maxBackgroundWrites
	if len(left) > 0 {
		most /= 2
	}
	answers, answered, rest := answersTo(snapshot.state.explanations.pods, waiting, now)
	next, due, wait := dueExplanations(snapshot.state.explanations.pods, rest, most, &turn.slot, now)
	maps.Copy(next, answered)
	answers = append(answers, outdated(snapshot, o)...)
	if len(left) > 0 && (len(due) > 0 || turn.slot.take()) {
		removed := min(len(left), maxBackgroundWrites-len(due))
		for _, pod := range left[:removed] {
			answers = append(answers, &podChange{pod: pod, change: lifecycle.Change{Annotations: deferreddelete.Verdicts[*string](pod.Annotations)}})
		}
		left = left[removed:]
	}
	if len(left) > 0 {
		wait = backoff.MinDelay(wait, evaluation.RetryBackground)
	}
	known := &snapshot.state.explanations
	*known = explanations{pods: next, rollouts: known.rolloutsAfter(rollouts, now), failed: failed}
	for _, one := range due {
		answers = append(answers, &one.podChange)
	}
	conflict, err := r.writePods(ctx, answers)
	if conflict {
		wait = backoff.MinDelay(wait, retryConflict)
	}
	for _, one := range answers {
		delete(known.failed, one.pod.UID)
		if !one.written {
			known.failed[one.pod.UID] = now
			delete(known.pods, one.pod.UID) // a later round tries again
			wait = backoff.MinDelay(wait, evaluation.RetryBackground)
		}
	}
	for _, one := range due {
		if one.written {
			r.recordExplained(snapshot, one.withheld, rollouts[string(one.withheld.request.Pod.Owner.UID)])
		}
	}
	return wait, err
}

// answersTo returns the annotations with the verdicts that clients wait for in admission, the explanations
// that are known with them, and the other pods.
func answersTo(
	before map[types.UID]explanation, waiting []*withheldPod, now time.Time,
) (due []*podChange, after map[types.UID]explanation, rest []*withheldPod) {
	after = map[types.UID]explanation{}
	for _, pod := range waiting {
		if _, known := before[pod.object.UID]; known || len(due) == maxAnswers || !deferreddelete.Heard(pod.object) || isOpen(pod.first.Code) {
			rest = append(rest, pod)
			continue
		}
		after[pod.object.UID] = explanation{digest: pod.digest.Sum64(), at: now}
		if annotations := annotationsFor(pod); len(annotations) > 0 {
			due = append(due, &podChange{pod: pod.object, change: lifecycle.Change{Annotations: annotations}})
		}
	}
	return due, after, rest
}

// outdated returns the removal of the verdicts on pods that would be permitted if their clients waited: these wait for the permit once
// they repeat their requests.
func outdated(snapshot snapshot, o evaluation.Outcome) []*podChange {
	var due []*podChange
	for _, request := range o.Allocation.Plan.Absent {
		object := snapshot.Pod(request.Pod.UID)
		if object == nil || !request.Refused || len(due) == maxAnswers {
			continue
		}
		due = append(due, &podChange{pod: object, change: lifecycle.Change{Annotations: deferreddelete.Verdicts[*string](object.Annotations)}})
	}
	return due
}

// isOpen reports whether a verdict comes by itself a moment later.
func isOpen(code rule.Code) bool {
	switch code {
	case rule.CodeWebhookPending, rule.CodeWebhookProcessing, rule.CodeNotReached, rule.CodeTimeout:
		return true
	default:
		return false
	}
}

// explanationWrite writes annotations to a pod that waits.
type explanationWrite struct {
	podChange
	withheld *withheldPod
}

// dueExplanations returns the explanations that are known after a round, and the first annotations that are
// due, at most so many. The slot is taken for these; the others are postponed.
func dueExplanations(
	before map[types.UID]explanation, waiting []*withheldPod, most int, slot *slot, now time.Time,
) (after map[types.UID]explanation, due []*explanationWrite, wait time.Duration) {
	after = map[types.UID]explanation{}
	held := false
	for _, pod := range waiting {
		if left := explainAfter - now.Sub(pod.since); left > 0 {
			wait = backoff.MinDelay(wait, left)
			continue
		}
		last, known := before[pod.object.UID]
		if left := explanationInterval - now.Sub(last.at); last.digest == pod.digest.Sum64() && left > 0 {
			wait, after[pod.object.UID] = backoff.MinDelay(wait, left), last
			continue
		}
		if held = held || slot.take(); !held || len(due) == most {
			wait = backoff.MinDelay(wait, evaluation.RetryBackground)
			if known {
				after[pod.object.UID] = last
			}
			continue
		}
		after[pod.object.UID] = explanation{digest: pod.digest.Sum64(), at: now, event: last.event}
		if annotations := annotationsFor(pod); len(annotations) > 0 {
			change := podChange{pod: pod.object, change: lifecycle.Change{Annotations: annotations}}
			due = append(due, &explanationWrite{podChange: change, withheld: pod})
		}
	}
	if held && len(due) == 0 {
		slot.release()
	}
	return after, due, wait
}

// rolloutsAfter returns the Deployments whose event is recorded, including Deployments that began
// to wait.
func (e *explanations) rolloutsAfter(rollouts map[string]*rollout, now time.Time) map[string]time.Time {
	after := map[string]time.Time{}
	for uid, last := range e.rollouts {
		if now.Sub(last) < rolloutOver {
			after[uid] = last
		}
	}
	for uid, held := range rollouts {
		if _, recorded := after[uid]; recorded || held.known {
			after[uid] = now
		}
	}
	return after
}

// recordExplained records the events that belong to an annotation that was written.
func (r *Reconciler) recordExplained(snapshot snapshot, pod *withheldPod, held *rollout) {
	known, now := snapshot.state.explanations, r.clock.Now()
	entry, ok := known.pods[pod.object.UID]
	if isNews(pod.object.Annotations, pod.first) && now.Sub(entry.event) >= withheldInterval {
		r.recordWithheld(pod)
		if ok {
			entry.event = now
			known.pods[pod.object.UID] = entry
		}
	}
	if held == nil {
		return
	}
	if _, recorded := known.rollouts[string(held.owner.UID)]; !recorded {
		known.rollouts[string(held.owner.UID)] = now
		r.recordRollout(snapshot.Namespace, held)
	}
}

// withheldPod is a pod of which a rule withholds at least one request.
type withheldPod struct {
	object *corev1.Pod
	since  time.Time
	stage  appsv1alpha1.TransitionStage

	// request that waits, and the first of the reasons for it.
	request rule.Request
	first   rule.Reason

	// reasons by PodTransitionRule.
	reasons map[string][]rule.Reason

	// digest is a hash of the reasons: they may be many, and a digest is kept for each pod that waits.
	digest hash.Hash64
}

// waitingPods returns the pods that rules withhold, the oldest request first. Pods that hold a reservation
// are left out: permit.Plan.Invalidate writes to them.
func waitingPods(snapshot snapshot, o evaluation.Outcome) []*withheldPod {
	var pods []*withheldPod
	byUID := map[types.UID]*withheldPod{}
	for _, request := range snapshot.Waiting {
		reasons, object := o.Reasons(request.Key()), snapshot.Pod(request.Pod.UID)
		if len(reasons) == 0 || object == nil || o.IsReserved(request.Pod.UID) {
			continue
		}
		pod, ok := byUID[request.Pod.UID]
		if !ok {
			pod = &withheldPod{
				object: object, since: request.Since, stage: request.Stage, reasons: map[string][]rule.Reason{},
				request: request, first: reasons[0], digest: fnv.New64a(),
			}
			byUID[request.Pod.UID], pods = pod, append(pods, pod)
		}
		for _, reason := range reasons {
			if _, known := pod.reasons[reason.Rule.Ruleset.Name]; !known && len(pod.reasons) == maxExplanations {
				continue
			}
			pod.reasons[reason.Rule.Ruleset.Name] = append(pod.reasons[reason.Rule.Ruleset.Name], reason)
		}
		digest(pod.digest, reasons)
	}
	return pods
}

// annotationsFor returns the annotations of a pod that have to change.
func annotationsFor(pod *withheldPod) map[string]*string {
	changed := deferreddelete.Verdicts[*string](pod.object.Annotations)
	for object, reasons := range pod.reasons {
		key := appsv1alpha1.DetailAnnotationKey(object)
		value, err := json.Marshal(appsv1alpha1.Detail{Stage: pod.stage, RejectInfo: rejectInfo(reasons)})
		if err != nil {
			continue // strings and booleans always encode
		}
		text := string(value)
		if pod.object.Annotations[key] == text {
			delete(changed, key)
			continue
		}
		if changed == nil {
			changed = map[string]*string{}
		}
		changed[key] = &text
	}
	return changed
}
