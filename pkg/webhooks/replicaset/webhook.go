// Package replicaset contains the admission webhooks of ReplicaSets and Deployments: they keep
// the replicas of a ReplicaSet whose pods may not be deleted yet, and warn of Deployments that
// their rules can never let finish. Handlers decode, call pkg/replicasetscale, and respond.
package replicaset

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

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
	ScalePath            = "/hold-apps-v1-replicaset-scale"
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

// Handle keeps spec.replicas at the number of pods that may not be deleted yet, records the
// requested number, and restores the annotations of PodOps. A new ReplicaSet has no annotation
// of PodOps.
//
// A request that leaves spec.replicas as it is withdraws no demand: a patch or an apply that states the
// kept number has the same review as an update of another field, since the API server omits the
// type of the patch. A larger number withdraws it, and so does a Scale of the kept number.
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
	scale := replicasetscale.Scale{Replicas: want}
	if replicasetscale.IsControlled(old) {
		var err error
		if scale, err = request(ctx, m.cache, old, before, want); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	patch := annotationPatch(requested.Annotations, annotationsOf(scale, before.Replicas, old.Annotations))
	if scale.Replicas != want {
		patch = append(patch, jsonpatch.NewOperation("replace", "/spec/replicas", scale.Replicas))
	}
	return admission.Patched("", patch...).WithWarnings(warnings(req, before.Replicas, scale)...)
}

// request returns the scale of a ReplicaSet that follows from a requested number.
func request(
	ctx context.Context, cache replicasetpods.Reader, set *appsv1.ReplicaSet, before replicasetscale.Scale, want int,
) (replicasetscale.Scale, error) {
	pods, err := cache.Pods(ctx, set.Namespace, set.UID)
	if err != nil {
		return replicasetscale.Scale{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	workload, err := cache.Workload(ctx, set)
	if err != nil {
		return replicasetscale.Scale{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	old := workload.Deployment != nil && !replicasetscale.IsNewest(set, workload.Deployment)
	return before.Request(want, replicasetscale.Ungranted(pods), old), nil
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

// warnings returns the warning to a person whose request was kept. Controllers, which repeat
// their requests, would log it each time. replicas is the number from before the request.
func warnings(req admission.Request, replicas int, scale replicasetscale.Scale) []string {
	if scale.Demand == nil || strings.HasPrefix(req.UserInfo.Username, "system:") {
		return nil
	}
	return []string{fmt.Sprintf(
		"PodOps keeps %d replicas until pods may be deleted, and goes on to %d. "+
			"Why they wait: kubectl get podtransitionrule -n %s -o wide. To withdraw: kubectl scale -n %s rs/%s --replicas=%d",
		scale.Replicas, *scale.Demand, req.Namespace, req.Namespace, req.Name, replicas)}
}
