package replicaset

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/replicasetscale"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// recordTimeout bounds the request that records a demand, within the timeout of the webhook.
const recordTimeout = 2 * time.Second

// Scaler is the mutating webhook of the scale of ReplicaSets. A Scale has no annotations that are
// stored, so the webhook records the demand on the ReplicaSet before it keeps the replicas. It
// does so for reviews of the API server only: any other client could forge a scale-down. Without
// that proof the request passes, and the deletes of its pods are held one by one.
type Scaler struct {
	decoder  admission.Decoder
	cache    replicasetpods.Reader
	client   client.Client
	identity string
}

// NewScaler returns the webhook. c writes to the API server and reads from the cache, as cache does.
func NewScaler(decoder admission.Decoder, cache replicasetpods.Reader, c client.Client, identity string) *Scaler {
	return &Scaler{decoder: decoder, cache: cache, client: c, identity: identity}
}

// Handle keeps the replicas of a Scale, and records the demand. A Scale of the kept number or
// more withdraws it.
func (s *Scaler) Handle(ctx context.Context, req admission.Request) admission.Response {
	requested, old := &autoscalingv1.Scale{}, &autoscalingv1.Scale{}
	if err := s.decoder.DecodeRaw(req.Object, requested); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding Scale: %w", err))
	}
	if err := s.decoder.DecodeRaw(req.OldObject, old); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the stored Scale: %w", err))
	}
	if req.UserInfo.Username == s.identity || !clientauth.Verified(ctx) {
		return admission.Allowed("")
	}
	set := &appsv1.ReplicaSet{}
	err := s.client.Get(ctx, types.NamespacedName{Namespace: req.Namespace, Name: req.Name}, set)
	switch {
	case apierrors.IsNotFound(err):
		return admission.Allowed("")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("reading the ReplicaSet: %w", err))
	case set.UID != old.UID || set.DeletionTimestamp != nil || !replicasetscale.IsControlled(set):
		return admission.Allowed("")
	}
	// The cache may be behind the Scale of the review.
	before := replicasetscale.Scale{Replicas: int(old.Spec.Replicas)}
	scale, err := request(ctx, s.cache, set, before, int(requested.Spec.Replicas))
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if req.DryRun == nil || !*req.DryRun {
		if err := s.record(ctx, set, before.Replicas, scale); err != nil {
			// The demand could neither be recorded nor carried out.
			return review.TooManyRequests("PodOps cannot record this request, try again: " + err.Error())
		}
	}
	var patch []jsonpatch.Operation
	if scale.Replicas != int(requested.Spec.Replicas) {
		patch = append(patch, jsonpatch.NewOperation("replace", "/spec/replicas", scale.Replicas))
	}
	return admission.Patched("", patch...).WithWarnings(warnings(req, before.Replicas, scale)...)
}

// record writes the demand to the ReplicaSet, or removes it. A client that sends the
// resourceVersion of its Scale gets a conflict then, and finds the demand recorded when it
// tries again.
func (s *Scaler) record(ctx context.Context, set *appsv1.ReplicaSet, replicas int, scale replicasetscale.Scale) error {
	want := annotationsOf(scale, replicas, set.Annotations)
	changes := map[string]any{}
	for _, key := range []string{appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey} {
		value, wanted := want[key]
		current, present := set.Annotations[key]
		switch {
		case wanted && (!present || value != current):
			changes[key] = value
		case present && !wanted:
			changes[key] = nil
		}
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("encoding annotations: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	stored := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	if err := s.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("recording the requested replicas of ReplicaSet %s: %w", client.ObjectKeyFromObject(set), err)
	}
	return nil
}
