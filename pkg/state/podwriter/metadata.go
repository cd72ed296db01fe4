package podwriter

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// deniedWithoutLabel is in the message with which config/webhook/manager_policy.yaml denies additions to a pod that has lost the control
// label.
const deniedWithoutLabel = "adds nothing to a pod without the label " + appsv1alpha1.ControlLabelKey

// PatchMetadata changes labels and annotations of the pod with this UID, not of another pod of
// the same name, as any operation controller does; nil values remove a key. It returns the pod
// as stored, nil when the pod no longer exists, or has lost the control label, which a cache may not show yet.
func PatchMetadata(ctx context.Context, c client.Client, pod *corev1.Pod, labels, annotations map[string]any) (*corev1.Pod, error) {
	return patchMetadata(ctx, c, pod, metadata{UID: pod.UID, Labels: labels, Annotations: annotations})
}

// PatchUnchanged is PatchMetadata on condition that the pod is still at its resourceVersion. It returns nil, too, when the pod
// has changed.
func PatchUnchanged(ctx context.Context, c client.Client, pod *corev1.Pod, labels, annotations map[string]any) (*corev1.Pod, error) {
	return patchMetadata(ctx, c, pod, metadata{UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: labels, Annotations: annotations})
}

// Change is a change of a pod's metadata.
type Change struct {
	// Owners are the owner references; nil leaves them.
	Owners []metav1.OwnerReference

	// Labels and Annotations are changed; nil values remove a key.
	Labels, Annotations map[string]any
}

// PatchOwners is PatchUnchanged with owner references.
func PatchOwners(ctx context.Context, c client.Client, pod *corev1.Pod, change Change) (*corev1.Pod, error) {
	return patchMetadata(ctx, c, pod, metadata{
		UID: pod.UID, ResourceVersion: pod.ResourceVersion, OwnerReferences: change.Owners, Labels: change.Labels, Annotations: change.Annotations,
	})
}

// metadata is a change of a pod's metadata, and its preconditions.
type metadata struct {
	Annotations     map[string]any          `json:"annotations,omitempty"`
	Labels          map[string]any          `json:"labels,omitempty"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	UID             types.UID               `json:"uid"`
}

func patchMetadata(ctx context.Context, c client.Client, pod *corev1.Pod, change metadata) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return nil, fmt.Errorf("encoding labels: %w", err)
	}
	stored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	err = c.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), deniedWithoutLabel):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("patching labels of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return stored, nil
}
