package podtransitionrule

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

const (
	// explainAfter is how long a pod waits before an annotation says why. Most pods are
	// on their way sooner, and the write would be for nobody.
	explainAfter = 10 * time.Second

	// detailInterval is how often an annotation is written again because of its numbers
	// alone.
	detailInterval = time.Minute

	// maxDetails is how many annotations of this kind a pod gets at most, so that it stays
	// far below what the API server takes of all annotations.
	maxDetails = 10
)

// detailed is what the annotations of a pod say, since when it was looked at, and when its
// last event was recorded.
type detailed struct {
	digest string
	at     time.Time
	event  time.Time
}

// explained is what pods of a namespace that wait were given as explanations.
type explained struct {
	pods map[types.UID]detailed

	// rollouts are the Deployments whose event was recorded, and when a pod of them last
	// waited.
	rollouts map[string]time.Time
}

// details are the annotations to write on pods that have waited for a while: why, per
// PodTransitionRule. They are written when another rule holds a pod back, or for another
// reason; what is left over on a pod that does not wait any more is taken off. No pod
// waits for that, so it is done a little at a time: each change takes one of r.rest, which
// the caller gives back. With an annotation that has a new first reason goes an event, at
// most one a minute for each pod: after a restart the annotation shows what was recorded. It
// returns how soon to come back for pods that were put off, or have not waited long enough.
func (r *Reconciler) details(view podindex.Snapshot, d *decision) (changes []podChange, wait time.Duration) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := waitingPods(view, d)
	rollouts := rolloutsOf(waiting)
	before, after := r.explained[view.Namespace].pods, map[types.UID]detailed{}
	for _, pod := range waiting {
		if left := explainAfter - now.Sub(pod.since); left > 0 {
			wait = minDelay(wait, left)
			continue
		}
		last, known := before[pod.object.UID]
		if left := detailInterval - now.Sub(last.at); last.digest == pod.digest && left > 0 {
			wait, after[pod.object.UID] = minDelay(wait, left), last
			continue
		}
		if !r.background.TryAcquire(1) {
			wait = minDelay(wait, retryBackground)
			if known {
				after[pod.object.UID] = last
			}
			continue
		}
		after[pod.object.UID] = detailed{digest: pod.digest, at: now, event: last.event}
		annotations := annotationsFor(pod)
		if len(annotations) == 0 {
			r.background.Release(1)
			continue
		}
		changes = append(changes, podChange{
			pod: pod.object, change: lifecycle.Change{Annotations: annotations},
			done: r.detailDone(view.Namespace, pod, last.event, rollouts[string(pod.request.Pod.Owner.UID)]),
		})
	}
	for _, pod := range view.Leftover {
		if !r.background.TryAcquire(1) {
			wait = minDelay(wait, retryBackground)
			break
		}
		changes = append(changes, podChange{pod: pod, change: lifecycle.Change{Annotations: withoutDetails(pod.Annotations)}})
	}
	r.keepExplained(view.Namespace, after, rollouts, now)
	return changes, wait
}

// keepExplained replaces what is remembered of a namespace. The caller holds the lock.
func (r *Reconciler) keepExplained(namespace string, pods map[types.UID]detailed, rollouts map[string]*rollout, now time.Time) {
	next := explained{pods: pods, rollouts: map[string]time.Time{}}
	for uid, last := range r.explained[namespace].rollouts {
		if now.Sub(last) < rolloutOver {
			next.rollouts[uid] = last
		}
	}
	for uid, held := range rollouts {
		if _, recorded := next.rollouts[uid]; recorded || held.known {
			next.rollouts[uid] = now
		}
	}
	r.explained[namespace] = next
	if len(next.pods)+len(next.rollouts) == 0 {
		delete(r.explained, namespace)
	}
}

// detailDone records what the annotation of a pod says, once it is written. One that was
// not written is tried again in the next round.
func (r *Reconciler) detailDone(namespace string, pod *withheldPod, lastEvent time.Time, held *rollout) func(bool) {
	return func(written bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		known := r.explained[namespace]
		if !written {
			delete(known.pods, pod.object.UID)
			return
		}
		now := r.clock.Now()
		if isNews(pod.object.Annotations, pod.first) && now.Sub(lastEvent) >= withheldInterval {
			r.recordWithheld(pod)
			if entry, ok := known.pods[pod.object.UID]; ok {
				entry.event = now
				known.pods[pod.object.UID] = entry
			}
		}
		if held == nil || known.rollouts == nil {
			return
		}
		if _, recorded := known.rollouts[string(held.owner.UID)]; !recorded {
			known.rollouts[string(held.owner.UID)] = now
			r.recordRollout(namespace, held)
		}
	}
}

// withheldPod is a pod that some rule holds back, in one of its requests at least.
type withheldPod struct {
	object *corev1.Pod
	since  time.Time
	stage  appsv1alpha1.TransitionStage

	// request that waits, and the first of the reasons for it.
	request rule.Request
	first   rule.Reason

	// reasons by PodTransitionRule.
	reasons map[string][]rule.Reason

	// digest is what makes its reasons different from others.
	digest string
}

// waitingPods are the pods that rules hold back, the oldest request first. A pod that
// holds a reservation is none of them: it is written already.
func waitingPods(view podindex.Snapshot, d *decision) []*withheldPod {
	var pods []*withheldPod
	byUID := map[types.UID]*withheldPod{}
	for _, request := range view.Waiting {
		reasons, object := d.withheld[request.Key()], view.Pod(request.Pod.UID)
		if len(reasons) == 0 || object == nil || d.isReserved(request.Pod.UID) {
			continue
		}
		pod, ok := byUID[request.Pod.UID]
		if !ok {
			pod = &withheldPod{
				object: object, since: request.Since, stage: request.Stage, reasons: map[string][]rule.Reason{},
				request: request, first: reasons[0],
			}
			byUID[request.Pod.UID], pods = pod, append(pods, pod)
		}
		for _, reason := range reasons {
			if _, known := pod.reasons[reason.Rule.Object.Name]; !known && len(pod.reasons) == maxDetails {
				continue
			}
			pod.reasons[reason.Rule.Object.Name] = append(pod.reasons[reason.Rule.Object.Name], reason)
		}
		pod.digest += digest(reasons) + ";"
	}
	return pods
}

func (d *decision) isReserved(uid types.UID) bool {
	return slices.ContainsFunc(d.budgets, func(budget permit.Budget) bool { _, live := budget.Live[uid]; return live })
}

// annotationsFor are the annotations of a pod that have to change.
func annotationsFor(pod *withheldPod) map[string]*string {
	changed := withoutDetails(pod.object.Annotations)
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

// withoutDetails takes off what explains why a pod waits; nil when there is nothing.
func withoutDetails(annotations map[string]string) map[string]*string {
	var off map[string]*string
	for key := range maps.Keys(annotations) {
		if !strings.HasPrefix(key, appsv1alpha1.DetailAnnotationPrefix+"/") {
			continue
		}
		if off == nil {
			off = map[string]*string{}
		}
		off[key] = nil
	}
	return off
}
