package pod

import (
	"maps"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/surge"
)

// releaseChange returns the changes to the annotations, and to the remaining metadata, of a pod whose control label is removed: the pod
// gets back the deletion cost that it had before PodOps began its deletion, which would otherwise
// make it the first pod of every later scale-in, loses the reasons for which it waited, and is left to its ReplicaSet if it surges. It loses its protection
// finalizers: service controllers may read pods with the label only, and would never remove them.
func releaseChange(requested *corev1.Pod) (changes map[string]any, others []jsonpatch.Operation) {
	if appsv1alpha1.IsControlled(requested.Labels) {
		return nil, nil
	}
	owners, changes := surge.Release(requested)
	if changes == nil {
		changes = map[string]any{}
	}
	maps.Copy(changes, replicasetscale.Unpin(requested))
	maps.Copy(changes, deferreddelete.Verdicts[any](requested.Annotations))
	if owners != nil {
		others = append(others, jsonpatch.NewOperation("replace", "/metadata/ownerReferences", owners))
	}
	if kept := slices.DeleteFunc(slices.Clone(requested.Finalizers), lifecycle.IsProtectionFinalizer); len(kept) < len(requested.Finalizers) {
		others = append(others, jsonpatch.NewOperation("replace", "/metadata/finalizers", kept))
	}
	return changes, others
}
