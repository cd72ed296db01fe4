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
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

const (
	// detailAfter is how long a pod waits before an annotation says why. Most pods are
	// on their way sooner, and the write would be for nobody.
	detailAfter = 10 * time.Second

	// detailInterval is how often an annotation is written again because of its numbers
	// alone.
	detailInterval = time.Minute
)

// detailed is what the annotations of a pod say, and since when it was looked at.
type detailed struct {
	digest string
	at     time.Time
}

// details are the annotations to write on pods that have waited for a while: why, per
// PodTransitionRule. They are written when another rule holds a pod back, or for another
// reason; what is left over on a pod that does not wait any more is taken off. No pod
// waits for that, so it is done a little at a time: each change takes one of r.rest, which
// the caller gives back. It returns how soon to come back for pods that were put off, or
// have not waited long enough.
func (r *Reconciler) details(view facts.View, d *decision) (changes []podChange, wait time.Duration) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before, after := r.detailed[view.Namespace], map[types.UID]detailed{}
	for _, pod := range waitingPods(view, d) {
		if left := detailAfter - now.Sub(pod.since); left > 0 {
			wait = sooner(wait, left)
			continue
		}
		last, known := before[pod.object.UID]
		if left := detailInterval - now.Sub(last.at); last.digest == pod.digest && left > 0 {
			wait, after[pod.object.UID] = sooner(wait, left), last
			continue
		}
		if !r.rest.TryAcquire(1) {
			wait = sooner(wait, retryRest)
			if known {
				after[pod.object.UID] = last
			}
			continue
		}
		after[pod.object.UID] = detailed{digest: pod.digest, at: now}
		annotations := annotationsFor(pod)
		if len(annotations) == 0 {
			r.rest.Release(1)
			continue
		}
		changes = append(changes, podChange{pod.object, lifecycle.Change{Annotations: annotations}})
	}
	for _, pod := range view.Leftover {
		if !r.rest.TryAcquire(1) {
			wait = sooner(wait, retryRest)
			break
		}
		changes = append(changes, podChange{pod, lifecycle.Change{Annotations: withoutDetails(pod.Annotations)}})
	}
	r.detailed[view.Namespace] = after
	if len(after) == 0 {
		delete(r.detailed, view.Namespace)
	}
	return changes, wait
}

// withheldPod is a pod that some rule holds back, in one of its requests at least.
type withheldPod struct {
	object *corev1.Pod
	since  time.Time
	stage  appsv1alpha1.TransitionStage

	// reasons by PodTransitionRule.
	reasons map[string][]policy.Reason

	// digest is what makes its reasons different from others.
	digest string
}

// waitingPods are the pods that rules hold back, the oldest request first. A pod that
// holds a reservation is none of them: it is written already.
func waitingPods(view facts.View, d *decision) []*withheldPod {
	var pods []*withheldPod
	byUID := map[types.UID]*withheldPod{}
	for _, request := range view.Waiting {
		reasons, object := d.withheld[request.Key()], view.Pod(request.Pod.UID)
		if len(reasons) == 0 || object == nil || d.isReserved(request.Pod.UID) {
			continue
		}
		pod, ok := byUID[request.Pod.UID]
		if !ok {
			pod = &withheldPod{object: object, since: request.Since, stage: request.Stage, reasons: map[string][]policy.Reason{}}
			byUID[request.Pod.UID], pods = pod, append(pods, pod)
		}
		for _, reason := range reasons {
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
		key := appsv1alpha1.DetailAnnotationPrefix + "/" + object
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
