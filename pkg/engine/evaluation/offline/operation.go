package offline

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Operation is an operation that pods wait for.
type Operation struct {
	// Type is the operation type, and Stage the stage in which the pods wait.
	Type  string
	Stage appsv1alpha1.TransitionStage

	// ID is the id of the lifecycle: for the type delete the id of deletes, or else "eval".
	ID string

	// At is when the waiting began.
	At time.Time

	// Requester is the client that requests the operation; zero for no client.
	Requester rule.Requester
}

// Waits reports whether a lifecycle of a pod waits for rules.
func Waits(pod *corev1.Pod) bool { return len(lifecycle.WaitingIDs(lifecycle.NewPodFacts(pod))) > 0 }

// MayBegin reports whether an operation on the pod would wait for rules: the pod is under PodOps, and neither
// terminates nor has finished.
func MayBegin(pod *corev1.Pod) bool {
	return appsv1alpha1.IsControlled(pod.Labels) && pod.DeletionTimestamp == nil && !podstate.Finished(pod)
}

// Begin returns the pod as it waits for an operation, with no other lifecycle. A pod in PostCheck is off
// traffic, as it is after its operation.
func Begin(pod *corev1.Pod, operation Operation) (*corev1.Pod, error) {
	id := cmp.Or(operation.ID, "eval")
	if operation.Type == appsv1alpha1.DeleteOperationType && operation.ID == "" {
		id = appsv1alpha1.PodDeleteID
	}
	waiting := pod.DeepCopy()
	withoutLifecycles(waiting)
	if operation.Stage == appsv1alpha1.StagePostCheck {
		postCheck(waiting, id, operation)
		return waiting, nil
	}
	before := lifecycle.NewPodFacts(waiting)
	requested := waiting.DeepCopy()
	setLabel(requested, appsv1alpha1.OperatingLabelPrefix+"/"+id, strconv.FormatInt(operation.At.UnixNano(), 10))
	setLabel(requested, appsv1alpha1.OperationTypeLabelPrefix+"/"+id, operation.Type)
	admitted := lifecycle.AdmitUpdate(before, lifecycle.NewPodFacts(requested), true, lifecycle.Options{}, operation.At)
	if len(admitted.Denials) > 0 {
		return nil, fmt.Errorf("pod %s: admission denies the operation: %s", pod.Name, lifecycle.DenialText(admitted.Denials))
	}
	requested.Labels = admitted.Change.Apply(requested.Labels)
	if operation.Requester != (rule.Requester{}) && id == appsv1alpha1.PodDeleteID {
		requested.UID = cmp.Or(requested.UID, derivedUID("Pod", requested.Namespace, requested.Name)) // the record is for this pod alone
		from := deferreddelete.Request{
			Method: deferreddelete.Method(operation.Requester.Method), Actor: deferreddelete.Actor(operation.Requester.Actor), User: operation.Requester.User,
			Groups: operation.Requester.GroupList(), GroupsTruncated: operation.Requester.GroupsTruncated,
		}
		record := from.Begin(requested, deferreddelete.Begun(requested))
		metav1.SetMetaDataAnnotation(&requested.ObjectMeta, appsv1alpha1.PendingDeleteAnnotationKey, deferreddelete.Encode(record))
	} else if operation.Requester != (rule.Requester{}) {
		user := appsv1alpha1.LabelRequester{
			Actor: operation.Requester.Actor, User: operation.Requester.User,
			Groups: operation.Requester.GroupList(), GroupsTruncated: operation.Requester.GroupsTruncated,
		}
		entries := lifecycle.Requesters{}.Update(waiting.Labels, requested.Labels, user)
		metav1.SetMetaDataAnnotation(&requested.ObjectMeta, appsv1alpha1.RequestersAnnotationKey, entries.Encode())
	}
	return requested, nil
}

// Permit returns the pod with the permit of an operation that waits in PreCheck: it is off traffic.
func Permit(pod *corev1.Pod, operation Operation) (*corev1.Pod, error) {
	operation.Stage = appsv1alpha1.StagePreCheck
	waiting, err := Begin(pod, operation)
	if err != nil {
		return nil, err
	}
	facts := lifecycle.NewPodFacts(waiting)
	attempts := map[string]string{}
	for _, one := range lifecycle.WaitingIDs(facts) {
		attempts[one.ID] = one.Attempt
	}
	change := lifecycle.Advance(facts, lifecycle.Permits{PreCheck: attempts}, lifecycle.Options{}, operation.At)
	waiting.Labels = change.Apply(waiting.Labels)
	setCondition(waiting, appsv1alpha1.ServiceReadyGate, corev1.ConditionFalse, operation.At)
	return Unavailable(waiting, operation.At), nil
}

// withoutLifecycles removes the lifecycles of a pod.
func withoutLifecycles(pod *corev1.Pod) {
	for key := range pod.Labels {
		prefix, _, hasID := strings.Cut(key, "/")
		if hasID && strings.HasSuffix(prefix, "."+appsv1alpha1.LifecycleDomain) {
			delete(pod.Labels, key)
		}
	}
}

// postCheck puts a pod in PostCheck: its operation has finished.
func postCheck(pod *corev1.Pod, id string, operation Operation) {
	attempt := strconv.FormatInt(operation.At.UnixNano(), 10)
	setLabel(pod, appsv1alpha1.OperatedLabelPrefix+"/"+id, attempt)
	setLabel(pod, appsv1alpha1.DoneOperationTypeLabelPrefix+"/"+id, operation.Type)
	setLabel(pod, appsv1alpha1.PostCheckLabelPrefix+"/"+id, attempt)
	delete(pod.Labels, appsv1alpha1.ServiceAvailableLabelKey)
	setCondition(pod, corev1.PodReady, corev1.ConditionFalse, operation.At)
	setCondition(pod, appsv1alpha1.ServiceReadyGate, corev1.ConditionFalse, operation.At)
}

func setLabel(pod *corev1.Pod, key, value string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[key] = value
}

func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, since time.Time) {
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == kind {
			condition.Status, condition.LastTransitionTime = status, metav1.NewTime(since)
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(since)})
}

// Serving returns a pod that serves: under PodOps, running, ready, and available since a time. Files with pods
// that are written by hand leave that out.
func Serving(pod *corev1.Pod, since time.Time) *corev1.Pod {
	serving := pod.DeepCopy()
	setLabel(serving, appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue)
	setLabel(serving, appsv1alpha1.ServiceAvailableLabelKey, strconv.FormatInt(since.UnixNano(), 10))
	serving.Spec.ReadinessGates = append(serving.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: appsv1alpha1.ServiceReadyGate})
	if serving.CreationTimestamp.IsZero() {
		serving.CreationTimestamp = metav1.NewTime(since)
	}
	serving.Status.Phase = corev1.PodRunning
	setCondition(serving, corev1.PodReady, corev1.ConditionTrue, since)
	setCondition(serving, appsv1alpha1.ServiceReadyGate, corev1.ConditionTrue, since)
	return serving
}

// Unavailable returns a pod that is not ready, and serves nothing, since a time.
func Unavailable(pod *corev1.Pod, since time.Time) *corev1.Pod {
	away := pod.DeepCopy()
	delete(away.Labels, appsv1alpha1.ServiceAvailableLabelKey)
	setCondition(away, corev1.PodReady, corev1.ConditionFalse, since)
	return away
}
