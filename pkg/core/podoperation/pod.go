package podoperation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// target is a pod with its state in an operation.
type target struct {
	pod     *corev1.Pod
	state   appsv1alpha1.PodOperationState
	message string

	// during is true while the lifecycle has begun and has not finished.
	during bool

	// written is true once the action is written to the pod.
	written bool

	// pending is true while the kubelet is about to replace or resize a container: the pod gets no traffic before that, not even after
	// a cancellation.
	pending bool

	// checking is true while the lifecycle waits for PreCheck rules.
	checking bool

	// blocked is true while the action cannot be carried out on the pod yet: its lifecycle does not begin.
	blocked bool

	// wait is the time after which the state changes without an event; 0 is never.
	wait time.Duration

	// next is the step that the pod is ready for; empty: no step, or Begin for a waiting pod.
	next StepKind

	// record is written with next.
	record Record
}

// has reports whether a pod has the label of a prefix and an id.
func has(pod *corev1.Pod, prefix, id string) bool {
	_, ok := pod.Labels[prefix+"/"+id]
	return ok
}

// observe returns the state of a pod in an operation.
func observe(operation *appsv1alpha1.PodOperation, pod *corev1.Pod, now time.Time) target {
	id := ID(operation.UID)
	record, recorded := readRecord(operation.UID, pod)
	t := target{
		pod: pod, during: has(pod, appsv1alpha1.OperatingLabelPrefix, id), written: recorded && record.Failed == "",
		checking: has(pod, appsv1alpha1.PreCheckLabelPrefix, id),
	}
	switch {
	case pod.DeletionTimestamp != nil:
		t.state, t.message = appsv1alpha1.PodCompleting, "terminates"
	case record.Failed != "":
		t.state, t.message = appsv1alpha1.PodFailed, record.Failed
		if t.during {
			t.next, t.record = Undo, record
		}
	case record.Done:
		t.observeCompletion(id)
	case t.during && has(pod, appsv1alpha1.OperateLabelPrefix, id):
		t.state = appsv1alpha1.PodOperating
		t.observeAction(operation, record, now)
	case t.during:
		t.state, t.message = appsv1alpha1.PodPreparing, "waits until its traffic is off"
		if t.checking {
			t.message = "waits for PreCheck rules"
		}
	case recorded:
		t.state, t.message = appsv1alpha1.PodFailed, "another client has ended the lifecycle"
	default:
		t.state = appsv1alpha1.PodWaiting
	}
	return t
}

// observeCompletion is the state of a pod whose lifecycle has finished.
func (t *target) observeCompletion(id string) {
	t.state = appsv1alpha1.PodCompleting
	switch {
	case has(t.pod, appsv1alpha1.PostCheckLabelPrefix, id):
		t.message = "waits for PostCheck rules"
	case has(t.pod, appsv1alpha1.OperatedLabelPrefix, id), has(t.pod, appsv1alpha1.CompleteLabelPrefix, id), t.during:
		t.message = "waits until it serves"
	default:
		t.state = appsv1alpha1.PodSucceeded
	}
}

// observeAction is the progress of the action on a pod that may be operated on.
func (t *target) observeAction(operation *appsv1alpha1.PodOperation, record Record, now time.Time) {
	action := operation.Spec.Action
	finished, failed, waits := false, "", ""
	switch action.Type {
	case appsv1alpha1.ActionResize:
		t.written, finished, failed = resizeProgress(action, t.pod)
		t.pending = t.written && !finished && failed == "" && !isDeferred(t.pod)
		t.message = "waits for its kubelet to resize it"
	case appsv1alpha1.ActionDelete, appsv1alpha1.ActionEvict:
		t.message = "is about to be removed"
	default:
		finished, failed, waits = t.observeReplacement(operation.UID, record, now)
		t.message = "waits for its containers to run again"
	}
	if !t.written && waits == "" {
		waits, _ = Check(action, t.pod, now) // the step Operate records the error
	}
	switch {
	case waits != "":
		t.message, t.wait = waits, BlockedDelay
	case !t.written:
		t.next, t.message = Operate, ""
	case finished:
		t.next, t.record = Finish, Record{Done: true}
	case failed != "":
		t.next, t.record = Finish, Record{Failed: failed}
	}
}

// observeReplacement returns whether the kubelet has replaced the containers, why it never will, and what the action waits for.
func (t *target) observeReplacement(operation types.UID, record Record, now time.Time) (finished bool, failed, waits string) {
	t.pending, t.wait = isPending(record, t.pod, now)
	if !t.written {
		if isReplacing(operation, t.pod) {
			waits = "waits until another PodOperation has replaced containers"
		}
		return false, "", waits
	}
	if name := reverted(record, t.pod); name != "" {
		failed = "another client has set the image of container " + name + " back"
	}
	return !t.pending && isRunning(record, t.pod), failed, ""
}
