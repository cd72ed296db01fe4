// Package podwriter writes lifecycle changes to pods: labels and gate in one request to
// pods/status.
//
// A cache may be older than the last write to a pod, and a decision on that version would cost a
// request that fails. Writer therefore remembers its own writes (CaughtUp) and its conflicts
// by resourceVersion and for a limited time (Versions). EnableReadYourWritesConsistency of
// controller-runtime is not used instead:
//
//   - It applies to reads through its client. Rounds read the pod index, which is no client.
//   - It blocks a read until the watch has caught up, and a List until the watch has caught up with
//     all writes of the kind. A worker would wait, and with it other pods, where CaughtUp only
//     postpones the pod.
//   - It does not cover conflicts with writes of other clients, which Versions do.
//   - It is experimental, and it turns DeleteAllOf into an error.
package podwriter

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// Writer sends lifecycle changes. It is safe for concurrent use.
type Writer struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock

	// stale has the versions with which a write had a conflict: until the watch delivers a newer
	// version, another event would repeat the decision and the conflict.
	stale *Versions

	// sent has the versions that the API server returned.
	sent *Versions

	absences *absences
}

// sentTTL is the time for which a write is remembered. A write is kept even after one cache has
// shown it: the controllers read from different watches, and a watch may be behind another. A
// watch that lags by more than this time only costs a conflict.
const sentTTL = 2 * time.Minute

// New returns a Writer that records the transitions of pods as events.
func New(c client.Client, recorder events.EventRecorder, clk clock.PassiveClock) *Writer {
	return &Writer{
		client: c, recorder: recorder, clock: clk, stale: NewVersions(StaleFor), sent: NewVersions(sentTTL), absences: newAbsences(),
	}
}

// CaughtUp reports whether a pod from a cache is at least as new as the last write of this
// Writer. A decision on an older pod only costs a conflict.
func (w *Writer) CaughtUp(pod *corev1.Pod) bool { return !w.sent.HasLater(pod, w.clock.Now()) }

// Write applies a change under the condition that the pod is still at its resourceVersion. A
// conflict means that the decision is out of date: the caller gets the API error, drops the
// decision, and decides again when the watch delivers the pod. It must not retry with a newer
// resourceVersion (package permit). The same resourceVersion is not sent twice within StaleFor:
// Write returns the conflict without a request. An empty change writes nothing.
func (w *Writer) Write(ctx context.Context, pod *corev1.Pod, change lifecycle.Change) error {
	if change.IsEmpty() {
		return nil
	}
	if w.stale.Has(pod, w.clock.Now()) {
		return fmt.Errorf("patching status of pod %s: %w", client.ObjectKeyFromObject(pod), errStale(pod))
	}
	patch, err := statusPatch(pod, change, w.clock.Now())
	if err != nil {
		return err
	}
	// The watch may deliver the pod before the response comes: by then its absence has ended.
	w.absences.checked(pod, change.Transitions, w.clock.Now())
	// Of the response only the resourceVersion is used, so the spec and the status are not sent.
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := w.client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		if apierrors.IsConflict(err) {
			w.stale.Note(pod, w.clock.Now())
		}
		return fmt.Errorf("patching status of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	now := w.clock.Now()
	w.sent.Note(written, now)
	recordTransitions(w.recorder, pod, change, now)
	return nil
}

// errStale returns the conflict that the API server would return.
func errStale(pod *corev1.Pod) error {
	return apierrors.NewConflict(corev1.Resource("pods"), pod.Name,
		fmt.Errorf("it was not at resourceVersion %s a moment ago", pod.ResourceVersion))
}

// statusPatch encodes a change as a strategic merge patch: conditions merge by type, so it
// contains no conditions of other owners. uid and resourceVersion make it conditional.
func statusPatch(pod *corev1.Pod, change lifecycle.Change, now time.Time) ([]byte, error) {
	labels := map[string]any{}
	for key, value := range change.Set {
		labels[key] = value
	}
	for _, key := range change.Remove {
		labels[key] = nil
	}
	meta := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	annotations, err := changedAnnotations(pod, change)
	if err != nil {
		return nil, err
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	patch := map[string]any{"metadata": meta}
	if conditions := conditionPatches(pod, change, now); len(conditions) > 0 {
		patch["status"] = map[string]any{"conditions": conditions}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding status patch: %w", err)
	}
	return data, nil
}

// conditionPatches returns the changes to the conditions of a pod, which merge by type.
func conditionPatches(pod *corev1.Pod, change lifecycle.Change, now time.Time) []map[string]any {
	var patches []map[string]any
	if gate := gatePatch(pod, change, now); gate != nil {
		patches = append(patches, gate)
	}
	for _, condition := range change.Conditions {
		patches = append(patches, map[string]any{
			"type": condition.Type, "status": corev1.ConditionTrue, "reason": condition.Reason, "message": condition.Message,
			"lastTransitionTime": metav1.NewTime(now),
		})
	}
	for _, kind := range change.RemoveConditions {
		patches = append(patches, map[string]any{"type": kind, "$patch": "delete"})
	}
	return patches
}

// gatePatch returns the change to the condition service-ready; nil if it does not change. A
// change of the gate removes the reason of the condition, which explained the old status.
func gatePatch(pod *corev1.Pod, change lifecycle.Change, now time.Time) map[string]any {
	if change.Gate == nil && change.GateReason == nil {
		return nil
	}
	condition := map[string]any{"type": appsv1alpha1.ServiceReadyGate}
	if change.Gate != nil {
		status := corev1.ConditionFalse
		if *change.Gate {
			status = corev1.ConditionTrue
		}
		condition["status"] = status
		condition["lastTransitionTime"] = metav1.NewTime(now)
		condition["message"] = appsv1alpha1.ServiceReadyMessage
	}
	if change.GateMessage != nil {
		condition["message"] = *change.GateMessage
	}
	hasReason := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == appsv1alpha1.ServiceReadyGate && c.Reason != ""
	})
	switch {
	case change.GateReason == nil && !hasReason:
	case change.GateReason == nil, *change.GateReason == "":
		condition["reason"] = nil
	default:
		condition["reason"] = *change.GateReason
	}
	return condition
}

// changedAnnotations returns the annotations that a change sets, or removes where the value is nil. An
// annotation available-conditions without an employer is removed, requesters go with their labels, and a grant of operate
// for a deletion changes the deletion cost.
func changedAnnotations(pod *corev1.Pod, change lifecycle.Change) (map[string]*string, error) {
	annotations := maps.Clone(change.Annotations)
	if annotations == nil {
		annotations = map[string]*string{}
	}
	if cost := replicasetscale.CostOnGrant(pod, change.Set); cost != "" {
		annotations[corev1.PodDeletionCost] = &cost
	}
	if entries := lifecycle.ParseRequesters(pod.Annotations); entries != nil && len(change.Remove) > 0 {
		annotations[appsv1alpha1.RequestersAnnotationKey] = entries.Change(change.Apply(pod.Labels))
	}
	if len(change.Forget) == 0 {
		return annotations, nil
	}
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	if err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
	}
	for _, employer := range change.Forget {
		delete(conditions.ExpectedFinalizers, employer)
	}
	annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = nil
	if len(conditions.ExpectedFinalizers) > 0 {
		data, err := json.Marshal(conditions)
		if err != nil {
			return nil, fmt.Errorf("encoding annotation %s: %w", appsv1alpha1.AvailableConditionsAnnotationKey, err)
		}
		text := string(data)
		annotations[appsv1alpha1.AvailableConditionsAnnotationKey] = &text
	}
	return annotations, nil
}
