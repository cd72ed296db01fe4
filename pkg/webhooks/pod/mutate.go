// Package pod contains the admission webhooks of pods: they advance lifecycles with the
// request that changes them, protect the labels that only PodOps may set, and defer deletes
// that come too early. Handlers decode, call pkg/core/lifecycle or pkg/core/deferreddelete, and respond.
package pod

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// Paths under which the handlers are served; the manifests name them.
const (
	MutatePath   = "/mutate-v1-pod"
	ValidatePath = "/validate-v1-pod"
	DeletePath   = "/hold-v1-pod-delete"
	EvictionPath = "/hold-v1-pod-eviction"
)

// Mutator is the mutating webhook of pods.
type Mutator struct {
	decoder  admission.Decoder
	identity string // user name of PodOps itself
	options  lifecycle.Options
	clock    clock.PassiveClock
	expected Expected
	services Services
}

// Services reports whether a Service selects a pod whose controller does not protect it, from caches only. Where it is unknown, the
// controller of the lifecycle decides.
type Services func(ctx context.Context, pod *corev1.Pod, facts lifecycle.PodFacts) (lifecycle.Services, error)

// Expected maps each employer ("<Kind>/<namespace>/<name>") that will employ a new pod to
// the finalizer that it adds when traffic is on. It reads from caches only. With an error the
// map still contains the known employers.
type Expected func(ctx context.Context, pod *corev1.Pod) (map[string]string, error)

// NewMutator returns the mutating webhook. identity is the user name of this manager at the
// API server.
func NewMutator(decoder admission.Decoder, identity string, options lifecycle.Options, clk clock.PassiveClock) *Mutator {
	return &Mutator{
		decoder: decoder, identity: identity, options: options, clock: clk,
		expected: func(context.Context, *corev1.Pod) (map[string]string, error) { return nil, nil },
		services: func(context.Context, *corev1.Pod, lifecycle.PodFacts) (lifecycle.Services, error) {
			return lifecycle.ServicesUnknown, nil
		},
	}
}

// Settling makes pods settle that a Service selects when their last finalizer goes. It returns m, and must be called before m serves.
func (m *Mutator) Settling(services Services) *Mutator {
	m.services = services
	return m
}

// Expecting makes new pods expect the finalizers of their employers from the start. It
// returns m, and must be called before m serves.
func (m *Mutator) Expecting(expected Expected) *Mutator {
	m.expected = expected
	return m
}

// Handle adds the readiness gate to a new pod, and the labels that follow from the
// request to an updated pod.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	requested, old, err := decode(m.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Create {
		return m.create(ctx, inNamespace(requested, req.Namespace))
	}
	if isStale(old, requested) {
		return admission.Allowed("")
	}
	trusted := req.UserInfo.Username == m.identity
	if !trusted && forgesRecord(old, requested) {
		return forged(appsv1alpha1.PendingDeleteAnnotationKey)
	}
	before, after := lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested)
	if before.Protected() && !after.Protected() { // the operation may start
		after.Ready = before.Ready
		if before.Services, err = m.services(ctx, requested, after); err != nil {
			ctrllog.FromContext(ctx).Error(err, "Reading the Services of a pod")
		}
	}
	decision := lifecycle.AdmitUpdate(before, after, trusted, m.options, m.clock.Now())
	if len(decision.Denials) > 0 {
		return denied(decision.Denials)
	}
	for _, transition := range decision.Change.Transitions {
		ctrllog.FromContext(ctx).V(1).Info("Lifecycle step at admission", "step", transition.Step, "id", transition.ID, "operationType", transition.Type)
	}
	labels := decision.Change.Apply(requested.Labels)
	released, release := releaseChange(requested)
	annotations := annotationPatch(requested.Annotations, costChange(requested, decision.Change), recordChange(old, requested, labels, trusted),
		requestersChange(requested, requesters(old, labels, requester(req, old, m.identity))), released)
	response := admission.Patched("", slices.Concat(labelPatch(requested.Labels, decision.Change), annotations, release)...)
	if !appsv1alpha1.IsControlled(old.Labels) {
		response.Warnings = unguarded(requested, hasGate(requested))
	}
	return response
}

// unguarded returns the warning of a pod that comes under PodOps and cannot be guarded: its
// PodTransitionRules have the condition Guarded with the same reason.
func unguarded(pod *corev1.Pod, gated bool) []string {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case !appsv1alpha1.IsControlled(pod.Labels):
		return nil
	case mirror:
		return []string{"PodOps cannot guard a mirror pod: only its kubelet stops a static pod, and no rule delays that"}
	case !gated:
		return []string{fmt.Sprintf("PodOps cannot guard this pod: it was created without the readiness gate %s, so only finalizers keep its traffic off; "+
			"set the label %s in the template of its owner, and delete the pod to have it created with the gate",
			appsv1alpha1.ServiceReadyGate, appsv1alpha1.ControlLabelKey)}
	default:
		return nil
	}
}

// inNamespace returns the pod with the namespace of its request: a client may omit it.
func inNamespace(pod *corev1.Pod, namespace string) *corev1.Pod {
	if pod.Namespace == "" {
		pod.Namespace = namespace
	}
	return pod
}

func (m *Mutator) create(ctx context.Context, pod *corev1.Pod) admission.Response {
	if !appsv1alpha1.IsControlled(pod.Labels) {
		return admission.Allowed("")
	}
	decision := lifecycle.AdmitCreate(lifecycle.NewPodFacts(pod))
	// An error does not deny the pod: controllers record the missing finalizers a moment later.
	expected, err := m.expected(ctx, pod)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the employers of a new pod", "namespace", pod.Namespace, "generateName", pod.GenerateName)
	}
	annotations := annotationPatch(pod.Annotations, expectedChange(pod, expected), requestersChange(pod, nil))
	response := admission.Patched("", slices.Concat(labelPatch(pod.Labels, decision.Change), gatePatch(pod), annotations)...)
	response.Warnings = unguarded(pod, true) // gatePatch adds the gate
	for _, key := range decision.Stripped {
		response.Warnings = append(response.Warnings, strippedWarning(key))
	}
	return response
}

func strippedWarning(key string) string {
	if key == appsv1alpha1.ToDeleteLabelKey {
		return fmt.Sprintf("label %s removed: set it on a pod that exists; a template with it would create and delete pods without end", key)
	}
	return fmt.Sprintf("label %s removed: a new pod has no lifecycle yet", key)
}

// isStale reports whether the request was made on an older version than the stored pod. The API
// server rejects it with a conflict, after which the client reads again; a denial would be final
// for the client.
func isStale(old, requested *corev1.Pod) bool {
	return requested.ResourceVersion != "" && requested.ResourceVersion != old.ResourceVersion
}

// labelPatch returns a patch with one operation for each label. A patch made from whole
// objects would drop fields that this version of the pod type does not know.
func labelPatch(labels map[string]string, change lifecycle.Change) []jsonpatch.Operation {
	var operations []jsonpatch.Operation
	if len(labels) == 0 && len(change.Set) > 0 {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/labels", change.Set)}
	}
	for _, key := range slices.Sorted(maps.Keys(change.Set)) {
		operations = append(operations, jsonpatch.NewOperation("add", review.LabelPath(key), change.Set[key]))
	}
	for _, key := range change.Remove {
		operations = append(operations, jsonpatch.NewOperation("remove", review.LabelPath(key), nil))
	}
	return operations
}

// annotationPatch returns a patch with one operation for each annotation; nil removes it, and a later change replaces an earlier one.
func annotationPatch(annotations map[string]string, changes ...map[string]any) []jsonpatch.Operation {
	merged := map[string]any{}
	for _, change := range changes {
		maps.Copy(merged, change)
	}
	var operations []jsonpatch.Operation
	set := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		_, has := annotations[key]
		switch value := merged[key]; {
		case value != nil && annotations == nil:
			set[key] = value
		case value != nil:
			operations = append(operations, jsonpatch.NewOperation("add", review.AnnotationPath(key), value))
		case has:
			operations = append(operations, jsonpatch.NewOperation("remove", review.AnnotationPath(key), nil))
		}
	}
	if len(set) > 0 {
		operations = append(operations, jsonpatch.NewOperation("add", "/metadata/annotations", set))
	}
	return operations
}

// costChange returns the change of the deletion cost with which operate is granted.
func costChange(pod *corev1.Pod, change lifecycle.Change) map[string]any {
	if cost := replicasetscale.CostOnGrant(pod, change.Set); cost != "" {
		return map[string]any{corev1.PodDeletionCost: cost}
	}
	return nil
}

func hasGate(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: appsv1alpha1.ServiceReadyGate})
}

// gatePatch adds the readiness gate unless the pod has it.
func gatePatch(pod *corev1.Pod) []jsonpatch.Operation {
	gate := corev1.PodReadinessGate{ConditionType: appsv1alpha1.ServiceReadyGate}
	switch {
	case hasGate(pod):
		return nil
	case len(pod.Spec.ReadinessGates) == 0:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/spec/readinessGates", []corev1.PodReadinessGate{gate})}
	default:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/spec/readinessGates/-", gate)}
	}
}
