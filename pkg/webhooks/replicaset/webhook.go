// Package replicaset contains the admission webhooks of ReplicaSets and Deployments: they keep
// the replicas of a ReplicaSet whose pods may not be deleted yet, and warn of Deployments that
// their rules can never let finish. Handlers decode, call pkg/replicasetscale, and respond.
package replicaset

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/replicasetscale"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// Paths under which the handlers are served; the manifests name them.
const (
	MutatePath           = "/mutate-apps-v1-replicaset"
	DeploymentMutatePath = "/mutate-apps-v1-deployment"
)

// Mutator is the mutating webhook of ReplicaSets.
type Mutator struct {
	decoder  admission.Decoder
	cache    replicasetpods.Reader
	identity string // user name of PodOps itself
}

// NewMutator returns the mutating webhook. identity is the user name of this manager at the API
// server; its own requests pass unchanged.
func NewMutator(decoder admission.Decoder, cache replicasetpods.Reader, identity string) *Mutator {
	return &Mutator{decoder: decoder, cache: cache, identity: identity}
}

// Handle keeps spec.replicas of an old ReplicaSet in a step of a rollout at the number of pods that may not
// be deleted yet, records the requested number, and restores the annotations of PodOps. Every other
// lowering passes: the deletes of its pods are held one by one. A new ReplicaSet has no annotation of PodOps.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	requested := &appsv1.ReplicaSet{}
	if err := m.decoder.DecodeRaw(req.Object, requested); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding ReplicaSet: %w", err))
	}
	if req.UserInfo.Username == m.identity {
		return admission.Allowed("")
	}
	if req.Operation == admissionv1.Create {
		return admission.Patched("", annotationPatch(requested.Annotations, nil)...)
	}
	old := &appsv1.ReplicaSet{}
	if err := m.decoder.DecodeRaw(req.OldObject, old); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored ReplicaSet: %w", err))
	}
	if isStale(old, requested) || old.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	before, want := replicasetscale.ScaleOf(old), replicasetscale.ReplicasOf(requested.Spec.Replicas)
	if want == before.Replicas {
		return admission.Patched("", annotationPatch(requested.Annotations, old.Annotations)...)
	}
	scale, err := m.request(ctx, old, requested)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	patch := annotationPatch(requested.Annotations, annotationsOf(scale, before.Replicas, old.Annotations))
	if scale.Replicas != want {
		patch = append(patch, jsonpatch.NewOperation("replace", "/spec/replicas", scale.Replicas))
	}
	return admission.Patched("", patch...)
}

// request returns the scale of a ReplicaSet that follows from a request: the requested one, unless it is a
// step of a rollout whose pods may not be deleted yet.
func (m *Mutator) request(ctx context.Context, old, requested *appsv1.ReplicaSet) (replicasetscale.Scale, error) {
	want := replicasetscale.ReplicasOf(requested.Spec.Replicas)
	passed := replicasetscale.Scale{Replicas: want}
	if !replicasetscale.IsControlled(old) || want > replicasetscale.ReplicasOf(old.Spec.Replicas) {
		return passed, nil
	}
	workload, err := m.cache.Workload(ctx, old)
	if err != nil {
		return passed, fmt.Errorf("ReplicaSet %s: %w", old.Name, err)
	}
	if !workload.IsRolloutStep(old, requested) {
		return passed, nil
	}
	pods, err := m.cache.Pods(ctx, old.Namespace, old.UID)
	if err != nil {
		return passed, fmt.Errorf("ReplicaSet %s: %w", old.Name, err)
	}
	if !replicasetscale.IsUniform(old, pods) {
		return passed, nil
	}
	return replicasetscale.ScaleOf(old).Request(want, replicasetscale.Ungranted(pods)), nil
}

// isStale reports whether the request was made on an older object than the stored one. The API
// server rejects it with a conflict.
func isStale(old, requested *appsv1.ReplicaSet) bool {
	return requested.ResourceVersion != "" && requested.ResourceVersion != old.ResourceVersion
}

// annotationsOf returns the annotations of a scale that was just requested. The lowest number
// stays while the replicas do: a request that changes nothing must not write anything, or the
// controller of Deployments would repeat it at once.
func annotationsOf(scale replicasetscale.Scale, replicas int, old map[string]string) map[string]string {
	if scale.Demand == nil {
		return nil
	}
	annotations := map[string]string{appsv1alpha1.DesiredReplicasAnnotationKey: strconv.Itoa(*scale.Demand)}
	if lowest, ok := old[appsv1alpha1.LowestReplicasAnnotationKey]; ok && scale.Replicas == replicas {
		annotations[appsv1alpha1.LowestReplicasAnnotationKey] = lowest
	}
	return annotations
}

// annotationPatch changes the annotations of PodOps on an object from have to want.
func annotationPatch(have, want map[string]string) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for _, key := range []string{appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey} {
		value, wanted := want[key]
		current, present := have[key]
		switch {
		case wanted && have == nil:
			patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{}))
			have = map[string]string{}
			fallthrough
		case wanted && (!present || current != value):
			patch = append(patch, jsonpatch.NewOperation("add", review.AnnotationPath(key), value))
		case present && !wanted:
			patch = append(patch, jsonpatch.NewOperation("remove", review.AnnotationPath(key), nil))
		}
	}
	return patch
}
