package surge

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// keepCost is the deletion cost of a pod that is left to its ReplicaSet again: that deletes the other pod.
	keepCost = "1"

	// defaultDeadline is spec.progressDeadlineSeconds of a Deployment by default.
	defaultDeadline = 10 * time.Minute

	// retryEnded is the delay after which a ReplicaSet is looked at again that has a pod too many.
	retryEnded = 2 * time.Second
)

// Snapshot has the facts of one Deployment.
type Snapshot struct {
	Workload replicasetscale.Workload

	// Pods are the pods of its newest ReplicaSet, and the pods that the Deployment itself controls.
	Pods []*corev1.Pod

	// Rules are the PodTransitionRules of the namespace.
	Rules []appsv1alpha1.PodTransitionRule
}

// Change is what a Step does to a pod.
type Change string

// The changes.
const (
	// Begin makes the Deployment the controller of the pod.
	Begin Change = "Begin"

	// End leaves the pod to its ReplicaSet again.
	End Change = "End"

	// Forget removes what is recorded on the pod.
	Forget Change = "Forget"
)

// Cause is why a surge ends.
type Cause string

// The causes.
const (
	// CauseOperationEnded means that no operation on the pod is in progress.
	CauseOperationEnded Cause = "no operation on the pod is in progress"

	// CauseRollout means that the Deployment replaces the pod by one of a newer revision.
	CauseRollout Cause = "a rollout of the Deployment replaces the pod"

	// CauseWithheld means that the pod would not be permitted with another pod.
	CauseWithheld Cause = "a rule withholds the pod that does not surge"

	// CauseReplaced means that the ReplicaSet of the pod does not exist any more: the pod is deleted once its rules permit it.
	CauseReplaced Cause = "its ReplicaSet does not exist any more"

	// CauseTimedOut means that the other pod did not become available within spec.progressDeadlineSeconds.
	CauseTimedOut Cause = "the other pod has not become available within the progressDeadlineSeconds of the Deployment"
)

// Step is a change of one pod.
type Step struct {
	Pod    *corev1.Pod
	Change Change

	// Cause is set for End.
	Cause Cause

	// Rule names the rule that withholds the pod, for Begin.
	Rule string

	// Owners are the owner references of the pod from now on; nil: they do not change.
	Owners []metav1.OwnerReference

	// Labels and Annotations are changed; nil values remove a key.
	Labels, Annotations map[string]any
}

// Surges reports whether a Deployment itself controls a pod, so that another pod starts in its place.
func Surges(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && isDeployment(*controller)
}

func isDeployment(owner metav1.OwnerReference) bool {
	return owner.Kind == "Deployment" && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}

// Recorded returns the record of a surge on a pod; false without one, and for a malformed one.
func Recorded(pod *corev1.Pod) (appsv1alpha1.Surge, bool) {
	var record appsv1alpha1.Surge
	value := pod.Annotations[appsv1alpha1.SurgeAnnotationKey]
	if value == "" || len(value) > appsv1alpha1.MaxAnnotationBytes || json.Unmarshal([]byte(value), &record) != nil {
		return appsv1alpha1.Surge{}, false
	}
	return record, true
}

// Release returns the owner references without the Deployment of a pod that surges, which its ReplicaSet adopts then, and the annotations to change on a
// pod that leaves PodOps; nil without a change.
func Release(pod *corev1.Pod) (owners []metav1.OwnerReference, annotations map[string]any) {
	if Surges(pod) {
		owners = others(pod)
	}
	if _, has := pod.Annotations[appsv1alpha1.SurgeAnnotationKey]; has {
		record, _ := Recorded(pod)
		annotations = forgotten(pod, record)
	}
	return owners, annotations
}

// forgotten returns the annotations that remove a record, and the deletion cost that PodOps has set.
func forgotten(pod *corev1.Pod, record appsv1alpha1.Surge) map[string]any {
	annotations := map[string]any{appsv1alpha1.SurgeAnnotationKey: nil}
	if record.Cost && pod.Annotations[corev1.PodDeletionCost] == keepCost {
		annotations[corev1.PodDeletionCost] = nil
	}
	return annotations
}

// MayConcern reports whether a pod waits for an availablePolicy, surges, or has a record.
func MayConcern(pod *corev1.Pod) bool {
	if _, recorded := pod.Annotations[appsv1alpha1.SurgeAnnotationKey]; recorded || Surges(pod) {
		return true
	}
	return waits(pod) && slices.ContainsFunc(podstate.WithheldBy(pod.Annotations), isNoRoom)
}

func isNoRoom(withheld podstate.Withheld) bool { return withheld.Code == string(rule.CodeNoRoom) }

// Decide returns the steps for the pods of a Deployment, and the delay until it is to be decided again; 0 for never.
func Decide(s Snapshot, now time.Time) (steps []Step, wake time.Duration) {
	newest := s.Workload.Newest()
	if newest == nil || s.Workload.Deployment.DeletionTimestamp != nil {
		return nil, 0
	}
	surging := 0
	var waiting []*corev1.Pod
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		step, left, may := s.decide(pod, newest, now)
		switch {
		case step != nil:
			steps = append(steps, *step)
		case Surges(pod):
			surging++
		case may:
			waiting = append(waiting, pod)
		}
		wake = backoff.MinDelay(wake, left)
	}
	return append(steps, s.begin(waiting, surging, now)...), wake
}

// decide returns the step for a pod that surges, or has a record; nil if it goes on as it is. It also returns the delay until there may be one, and
// whether the pod may begin to surge.
func (s Snapshot) decide(pod *corev1.Pod, newest *appsv1.ReplicaSet, now time.Time) (step *Step, left time.Duration, may bool) {
	record, recorded := Recorded(pod)
	switch {
	case Surges(pod):
		step, left = s.end(pod, record, newest, now)
	case recorded && record.Ended != nil:
		step, left = s.forget(pod, record, newest, now)
		may = !record.TimedOut
	default:
		may = replicasetscale.IsActive(pod)
	}
	return step, left, may
}

// begin returns the steps for pods that wait, the longest wait first.
func (s Snapshot) begin(pods []*corev1.Pod, surging int, now time.Time) (steps []Step) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(begun(a), begun(b)), strings.Compare(a.Name, b.Name))
	})
	for room := s.room(surging); room > 0 && len(pods) > 0; pods = pods[1:] {
		pod := pods[0]
		if !waits(pod) || deferreddelete.ForReplicaSet(pod) || deferreddelete.OfOwner(pod) {
			continue
		}
		withholding, limit := s.limit(pod)
		if surging >= limit {
			continue
		}
		record, _ := Recorded(pod)
		record = appsv1alpha1.Surge{Began: metav1.NewTime(now), Cost: record.Cost}
		steps = append(steps, Step{
			Pod: pod, Change: Begin, Rule: withholding, Owners: controlledBy(pod, s.Workload.Deployment, "Deployment"),
			Annotations: map[string]any{appsv1alpha1.SurgeAnnotationKey: encode(record)},
		})
		surging++
		room--
	}
	return steps
}

// room returns how many pods more the Deployment may have.
func (s Snapshot) room(surging int) int {
	deployment := s.Workload.Deployment
	replicas, rolling := replicasetscale.Replicas(deployment.Spec.Replicas), deployment.Spec.Strategy.RollingUpdate
	if rolling == nil || replicas == 0 {
		return 0
	}
	total := surging
	for _, set := range s.Workload.Sets {
		total += max(replicasetscale.Replicas(set.Spec.Replicas), int(set.Status.Replicas))
	}
	return replicas + s.scaled(rolling.MaxSurge) - total
}

// limit returns how many pods may surge so that a pod can go, and the first rule or PodDisruptionBudget that withholds it; 0 if a rule withholds
// it that does not surge. A PodDisruptionBudget counts the other pod, too: alone, it leaves the number to the rules that select the pod.
func (s Snapshot) limit(pod *corev1.Pod) (withholding string, limit int) {
	surges := []int{}
	for _, withheld := range podstate.WithheldBy(pod.Annotations) {
		withholding = cmp.Or(withholding, withheld.Ruleset+"/"+withheld.Rule)
		switch {
		case !isNoRoom(withheld):
			return withholding, 0
		case withheld.Ruleset != string(rule.KindDisruptionBudget):
			surges = append(surges, s.scaled(s.surgeBy(withheld)))
		}
	}
	if len(surges) == 0 && withholding != "" {
		surges = s.selecting(pod)
	}
	if len(surges) == 0 {
		return withholding, 0
	}
	return withholding, slices.Min(surges)
}

// selecting returns how many pods may surge under each rule that selects a pod and surges.
func (s Snapshot) selecting(pod *corev1.Pod) (surges []int) {
	for i := range s.Rules {
		selector, err := metav1.LabelSelectorAsSelector(s.Rules[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for _, entry := range s.Rules[i].Spec.Rules {
			if entry.AvailablePolicy != nil && !entry.Disabled {
				if surge := s.scaled(entry.AvailablePolicy.Surge); surge > 0 {
					surges = append(surges, surge)
				}
			}
		}
	}
	return surges
}

// surgeBy returns the field surge of the rule that withholds a pod; nil without one.
func (s Snapshot) surgeBy(withheld podstate.Withheld) *intstr.IntOrString {
	for i := range s.Rules {
		// The key of the annotation has the end of a long name only.
		if !strings.HasSuffix(appsv1alpha1.DetailAnnotationKey(s.Rules[i].Name), "/"+withheld.Ruleset) {
			continue
		}
		for _, entry := range s.Rules[i].Spec.Rules {
			if entry.Name == withheld.Rule && entry.AvailablePolicy != nil {
				return entry.AvailablePolicy.Surge
			}
		}
	}
	return nil
}

// end returns the step for a pod that surges, nil while it goes on doing so, and the delay until that may end.
func (s Snapshot) end(pod *corev1.Pod, record appsv1alpha1.Surge, newest *appsv1.ReplicaSet, now time.Time) (step *Step, left time.Duration) {
	var cause Cause
	left = s.deadline() - now.Sub(record.Began.Time)
	set := s.replicaSet(pod)
	_, limit := s.limit(pod)
	switch {
	case set == nil:
		return s.remove(pod), 0
	case !operates(pod) || !replicasetscale.IsActive(pod):
		cause = CauseOperationEnded
	case !waits(pod): // it is permitted
		return nil, 0
	case set.UID != newest.UID:
		cause = CauseRollout
	case limit == 0 && len(podstate.WithheldBy(pod.Annotations)) > 0:
		cause = CauseWithheld
	case left <= 0:
		cause = CauseTimedOut
	default:
		return nil, left
	}
	ended := appsv1alpha1.Surge{Began: record.Began, Ended: ptr.To(metav1.NewTime(now)), TimedOut: cause == CauseTimedOut, Cost: record.Cost}
	annotations := map[string]any{}
	if _, costs := pod.Annotations[corev1.PodDeletionCost]; !costs {
		ended.Cost, annotations[corev1.PodDeletionCost] = true, keepCost
	}
	annotations[appsv1alpha1.SurgeAnnotationKey] = encode(ended)
	return &Step{Pod: pod, Change: End, Cause: cause, Owners: controlledBy(pod, set, "ReplicaSet"), Annotations: annotations}, retryEnded
}

// replicaSet returns the ReplicaSet with whose template a pod was created; nil if it does not exist any more.
func (s Snapshot) replicaSet(pod *corev1.Pod) *appsv1.ReplicaSet {
	for _, set := range s.Workload.Sets {
		if set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
			return set
		}
	}
	return nil
}

// remove returns the step for a pod without a ReplicaSet; nil once it is to be deleted.
func (s Snapshot) remove(pod *corev1.Pod) *Step {
	if _, requested := pod.Labels[appsv1alpha1.ToDeleteLabelKey]; requested {
		return nil
	}
	return &Step{Pod: pod, Change: End, Cause: CauseReplaced, Labels: map[string]any{appsv1alpha1.ToDeleteLabelKey: "true"}}
}

// forget returns the step for a pod that was left to its ReplicaSet, once that has no pod too many, and the delay until then. A pod whose surge timed
// out does not surge again before as long a time.
func (s Snapshot) forget(pod *corev1.Pod, record appsv1alpha1.Surge, newest *appsv1.ReplicaSet, now time.Time) (step *Step, left time.Duration) {
	if record.TimedOut {
		if left := s.deadline() - now.Sub(record.Ended.Time); left > 0 {
			return nil, left
		}
	}
	if metav1.IsControlledBy(pod, newest) && s.hasTooMany(newest) {
		return nil, retryEnded
	}
	return &Step{Pod: pod, Change: Forget, Annotations: forgotten(pod, record)}, 0
}

// hasTooMany reports whether a ReplicaSet has more pods than replicas, by the pods or by its status, which its controller writes later.
func (s Snapshot) hasTooMany(set *appsv1.ReplicaSet) bool {
	pods := 0
	for _, pod := range s.Pods {
		if metav1.IsControlledBy(pod, set) && replicasetscale.IsActive(pod) {
			pods++
		}
	}
	return max(pods, int(set.Status.Replicas)) > replicasetscale.Replicas(set.Spec.Replicas)
}

// deadline returns for how long a surge may wait for the other pod.
func (s Snapshot) deadline() time.Duration {
	if seconds := s.Workload.Deployment.Spec.ProgressDeadlineSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultDeadline
}

// controlledBy returns the owner references of a pod with another controller. A deletion of the controller in the foreground does not wait for the pod: that
// needs a right that PodOps does not have.
func controlledBy(pod *corev1.Pod, controller metav1.Object, kind string) []metav1.OwnerReference {
	owner := *metav1.NewControllerRef(controller, appsv1.SchemeGroupVersion.WithKind(kind))
	owner.BlockOwnerDeletion = nil
	return append(others(pod), owner)
}

// others returns the owner references of a pod without its controller; never nil.
func others(pod *corev1.Pod) []metav1.OwnerReference {
	owners := []metav1.OwnerReference{}
	for _, owner := range pod.OwnerReferences {
		if !ptr.Deref(owner.Controller, false) {
			owners = append(owners, owner)
		}
	}
	return owners
}

// operates reports whether a pod has a lifecycle: an operation on it is in progress, or has ended and the pod is not back in service.
func operates(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if prefix, _, _ := strings.Cut(key, "/"); strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain) {
			return true
		}
	}
	return false
}

// waits reports whether an operation on a pod waits for its rules, and no other is permitted.
func waits(pod *corev1.Pod) bool {
	return hasLabel(pod, appsv1alpha1.OperatingLabelPrefix) && hasLabel(pod, appsv1alpha1.PreCheckLabelPrefix) &&
		!hasLabel(pod, appsv1alpha1.PrepareLabelPrefix) && !hasLabel(pod, appsv1alpha1.OperateLabelPrefix)
}

func hasLabel(pod *corev1.Pod, prefix string) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, prefix+"/") {
			return true
		}
	}
	return false
}

// begun returns since when the first operation on a pod has waited, in nanoseconds.
func begun(pod *corev1.Pod) string {
	first := ""
	for key, since := range pod.Labels {
		if strings.HasPrefix(key, appsv1alpha1.PreCheckLabelPrefix+"/") && (first == "" || since < first) {
			first = since
		}
	}
	return first
}

// scaled returns a number of pods, a percentage of the replicas rounded up; 0 if it is not set.
func (s Snapshot) scaled(value *intstr.IntOrString) int {
	return replicasetscale.Scaled(value, replicasetscale.Replicas(s.Workload.Deployment.Spec.Replicas), true)
}

func encode(record appsv1alpha1.Surge) string {
	value, err := json.Marshal(record)
	if err != nil {
		return "" // no value of the type is invalid
	}
	return string(value)
}
