// Package replicaset contains the admission webhooks of ReplicaSets and Deployments: they keep
// the replicas of an old ReplicaSet in a rolling update whose pods may not be deleted yet, and warn of Deployments
// that their rules can never let finish. Handlers decode, call pkg/core/replicasetscale, and respond.
package replicaset

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// Paths under which the handlers are served; the manifests name them.
const (
	MutatePath           = "/mutate-apps-v1-replicaset"
	DeploymentMutatePath = "/mutate-apps-v1-deployment"
)

// Mutator is the mutating webhook of ReplicaSets.
type Mutator struct {
	decoder admission.Decoder
	cache   replicasetpods.Reader
	live    replicasetpods.Reader
}

// NewMutator returns the mutating webhook. live reads from the API server.
func NewMutator(decoder admission.Decoder, cache, live replicasetpods.Reader) *Mutator {
	return &Mutator{decoder: decoder, cache: cache, live: live}
}

// Handle keeps spec.replicas of an old ReplicaSet, in a rolling update step, at the number of pods that may not
// be deleted yet. Every other lowering passes: the deletes of its pods are held one by one. The annotations of
// PodOps, which have no meaning after the step, go with it.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	old, requested := &appsv1.ReplicaSet{}, &appsv1.ReplicaSet{}
	if err := m.decoder.DecodeRaw(req.Object, requested); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding ReplicaSet: %w", err))
	}
	if err := m.decoder.DecodeRaw(req.OldObject, old); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored ReplicaSet: %w", err))
	}
	if isStale(old, requested) || old.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	want := replicasetscale.Replicas(requested.Spec.Replicas)
	kept, err := m.kept(ctx, old, requested)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	var patch []jsonpatch.Operation
	if kept < replicasetscale.Replicas(old.Spec.Replicas) && kept == want { // a repeated request must not write anything
		patch = withoutAnnotations(requested.Annotations)
	}
	if kept != want {
		patch = append(patch, jsonpatch.NewOperation("replace", "/spec/replicas", kept))
		patch = append(patch, forEarlierVersions(requested.Annotations, want)...)
	}
	return admission.Patched("", patch...)
}

// forEarlierVersions records the lowest number that was requested, for a manager of an earlier version that takes over. This
// version does not read it.
func forEarlierVersions(annotations map[string]string, want int) []jsonpatch.Operation {
	const key = appsv1alpha1.DesiredReplicasAnnotationKey
	recorded, err := strconv.Atoi(annotations[key])
	if annotations == nil || err == nil && recorded <= want {
		return nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", review.AnnotationPath(key), strconv.Itoa(want))}
}

// kept returns the number of replicas that a request is answered with: the requested one, unless it is a
// step of a rolling update whose pods may not be deleted yet.
func (m *Mutator) kept(ctx context.Context, old, requested *appsv1.ReplicaSet) (int, error) {
	replicas, want := replicasetscale.Replicas(old.Spec.Replicas), replicasetscale.Replicas(requested.Spec.Replicas)
	if want >= replicas || !replicasetscale.IsControlled(old) {
		return want, nil
	}
	deployment, err := m.cache.Deployment(ctx, old)
	if err != nil {
		return 0, fmt.Errorf("ReplicaSet %s: %w", old.Name, err)
	}
	if replicasetscale.MayBeRolloutStep(deployment, old, requested) {
		// The controller of Deployments lowers old ReplicaSets milliseconds after it has written the revision of the newest.
		if deployment, err = m.live.Deployment(ctx, old); err != nil {
			return 0, fmt.Errorf("ReplicaSet %s: %w", old.Name, err)
		}
	}
	if !replicasetscale.IsRolloutStep(deployment, old, requested) {
		return want, nil
	}
	pods, err := m.cache.Pods(ctx, old.Namespace, old.UID)
	if err != nil {
		return 0, fmt.Errorf("ReplicaSet %s: %w", old.Name, err)
	}
	if replicasetscale.Others(old, pods) > 0 {
		return want, nil
	}
	return replicasetscale.Kept(replicas, want, replicasetscale.Ungranted(pods)), nil
}

// isStale reports whether the request was made on an older object than the stored one. The API
// server rejects it with a conflict.
func isStale(old, requested *appsv1.ReplicaSet) bool {
	return requested.ResourceVersion != "" && requested.ResourceVersion != old.ResourceVersion
}

// withoutAnnotations removes the annotations of PodOps on ReplicaSets from those of an object.
func withoutAnnotations(annotations map[string]string) (patch []jsonpatch.Operation) {
	for _, key := range replicasetscale.Annotations() {
		if _, present := annotations[key]; present {
			patch = append(patch, jsonpatch.NewOperation("remove", review.AnnotationPath(key), nil))
		}
	}
	return patch
}
